// SPDX-License-Identifier: Apache-2.0
// Declared parameters: one table of names, types, defaults, ranges and help serves validation, the
// command line's listings and the documentation.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"

namespace kvgauge {

using ParamValue = std::variant<bool, int64_t, double, std::string>;

struct ParamSpec {
  std::string name;
  ParamValue default_value;  // its alternative is the parameter's type
  double least = -std::numeric_limits<double>::infinity();  // numbers only
  double most = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices;  // strings only; empty means any
  std::string help;
};

// Declaration helpers.
ParamSpec BoolParam(std::string name, bool default_value, std::string help);
ParamSpec IntParam(std::string name, int64_t default_value, int64_t least, int64_t most,
                   std::string help);
ParamSpec RealParam(std::string name, double default_value, double least, double most,
                    std::string help);
ParamSpec ChoiceParam(std::string name, std::string default_value, std::vector<std::string> choices,
                      std::string help);

// Values for a list of specs: complete, typed, in range.
class Params {
 public:
  // Fills defaults and checks `given` (a JSON object, or null for all defaults). `owner` begins
  // every message, e.g. "methods/snapkv.json: score.snapkv".
  static Result<Params> Parse(const std::vector<ParamSpec>& specs, const Json& given,
                              std::string_view owner);

  // Precondition: declared, with that type.
  bool Bool(std::string_view name) const;
  int64_t Int(std::string_view name) const;
  double Real(std::string_view name) const;
  const std::string& Text(std::string_view name) const;

  // Every value, defaults included; canonical once dumped.
  Json ToJson() const;

 private:
  const ParamValue& At(std::string_view name) const;

  std::map<std::string, ParamValue, std::less<>> values_;
};

// "int in [0, 64], default 4".
std::string DescribeParam(const ParamSpec& spec);

}  // namespace kvgauge
