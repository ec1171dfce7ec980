// SPDX-License-Identifier: Apache-2.0
// A number with its noun: "1 sample", "1,200 samples".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/strings.h"

namespace kvgauge {

inline std::string Counted(int64_t number, std::string_view noun) {
  return StrCat(WithCommas(number), " ", noun, number == 1 ? "" : "s");
}

}  // namespace kvgauge
