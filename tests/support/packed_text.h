// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/json.h"

namespace kvgauge {

// A text of a golden: "x", {"repeat": [x, n]} or {"parts": [[x, n], ...]}.
inline std::string UnpackedText(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  const Json parts = json.contains("parts") ? json["parts"] : Json::array({json["repeat"]});
  std::string out;
  for (const Json& part : parts) {
    for (int i = 0; i < part[1].get<int>(); ++i) out += part[0].get<std::string>();
  }
  return out;
}

}  // namespace kvgauge
