// SPDX-License-Identifier: Apache-2.0
// A Jinja template as transformers runs chat templates: jinja2's immutable sandbox with trim_blocks
// and lstrip_blocks, `break` and `continue`, {% generation %}, tojson without HTML escapes,
// raise_exception and strftime_now. docs/formats/chat-templates.md lists what is known and what is
// refused.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "src/text/jinja/fault.h"

namespace kvgauge::jinja {

struct Document;

// What a rendering is given; what the template does not name is left out. UTF-8.
struct Inputs {
  // Role and text of each; the variable `messages`, unless `values` has one.
  std::vector<std::pair<std::string_view, std::string_view>> messages = {};
  std::vector<std::pair<std::string, std::string>> values = {};  // a name and a JSON text
  std::string date = "2024-07-26";  // what strftime_now says, at midnight
};

// Immutable and safe to share.
class Template {
 public:
  // An error names the line. `source`: any bytes; ill-formed UTF-8 is an error.
  static Result<Template> Parse(std::string_view source);

  // Whether some expression reads the variable.
  bool Reads(std::string_view name) const;
  // Every name that some expression reads, its own and those of functions among them.
  std::vector<std::string> Reads() const;

  // An error names the line and what stands there; the message of raise_exception is given as the
  // template has it.
  Result<std::string> Render(const Inputs& inputs, const Limits& limits = {}) const;

 private:
  explicit Template(std::shared_ptr<const Document> document) : document_(std::move(document)) {}
  std::shared_ptr<const Document> document_;
};

}  // namespace kvgauge::jinja
