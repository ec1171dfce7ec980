// SPDX-License-Identifier: Apache-2.0
// Environment variables that switch a part of the backend off. They change speed and no bit.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "core/strings.h"

namespace kvgauge::cuda {

inline constexpr const char* kLibrarySwitch = "KVGAUGE_CUDA_LIBRARY";
inline constexpr const char* kWarpgroupsSwitch = "KVGAUGE_CUDA_WARPGROUPS";
inline constexpr const char* kGraphsSwitch = "KVGAUGE_CUDA_GRAPHS";

inline bool SwitchedOff(const char* name) {
  const char* const set = std::getenv(name);
  return set != nullptr && std::string_view(set) == "off";
}

// Which of them says something that nobody would obey; "": none.
inline std::string WhyWrongSwitch() {
  for (const char* const name : {kLibrarySwitch, kWarpgroupsSwitch, kGraphsSwitch}) {
    const char* const set = std::getenv(name);
    const std::string_view value = set == nullptr ? "" : set;
    if (value.empty() || value == "off" || value == "on") continue;
    return StrCat(name, " is ", Quoted(value), ", expected off or on");
  }
  return {};
}

}  // namespace kvgauge::cuda
