// SPDX-License-Identifier: Apache-2.0
// What divides a number, for messages that say what would be right.
#pragma once

#include <cstdint>
#include <string>

namespace kvgauge {

// "1, 2, 4 or 8": those of [least, most]; "none" if there are none.
std::string DivisorsOf(int64_t number, int64_t least = 1, int64_t most = INT64_MAX);

}  // namespace kvgauge
