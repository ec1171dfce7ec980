// SPDX-License-Identifier: Apache-2.0
// The order in which CPython's set holds whole numbers: published code writes list(set(...)).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvgauge {

// list(set(values)), of CPython 3.8 to 3.13. Precondition: every value is in [0, 2^61 - 1), so that
// it is its own hash.
std::vector<int64_t> PythonSetOrder(std::span<const int64_t> values);

}  // namespace kvgauge
