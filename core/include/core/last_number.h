// SPDX-License-Identifier: Apache-2.0
// The number in the name of a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvgauge {

// The last run of decimal digits: 12 in "clip2_0012". Nothing where there is none, or where it is
// above INT64_MAX.
std::optional<int64_t> LastNumber(std::string_view text);

}  // namespace kvgauge
