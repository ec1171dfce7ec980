// SPDX-License-Identifier: Apache-2.0
// Regular expressions of tokenizer files: written for Oniguruma (Ruby syntax), run by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct Span {
  size_t begin, end;  // bytes
};

// Immutable; matching from several threads at once is safe.
class Regex {
 public:
  // Constructs that the two engines read differently are rewritten, or refused by name.
  // `where` begins messages: "dir/tokenizer.json: pre_tokenizer.pattern".
  static Result<Regex> Compile(std::string_view pattern, std::string_view where);

  // Replaces `out` by the non-overlapping matches from left to right; an empty match never touches
  // the match before it. Precondition: well-formed text. Fails when matching takes too many steps.
  Status FindAll(std::string_view text, std::vector<Span>& out) const;

 private:
  std::string where_;
  std::shared_ptr<const void> code_;
};

// The pattern in PCRE2's syntax; for tests.
Result<std::string> TranslateRegex(std::string_view pattern, std::string_view where);

}  // namespace kvgauge
