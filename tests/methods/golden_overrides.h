// SPDX-License-Identifier: Apache-2.0
// What a case of tests/golden/methods sets of its method.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace kvgauge {

// "{inputs}" in a value is the directory of the cases' inputs, which is in `directory`.
inline std::vector<std::string> OverridesOf(const Json& one, const std::string& directory) {
  auto overrides = one.at("set").get<std::vector<std::string>>();
  constexpr std::string_view kMark = "{inputs}";
  for (std::string& text : overrides) {
    const size_t at = text.find(kMark);
    if (at != std::string::npos) text.replace(at, kMark.size(), directory + "inputs");
  }
  return overrides;
}

}  // namespace kvgauge
