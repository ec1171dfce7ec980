// SPDX-License-Identifier: Apache-2.0
// Arithmetic that stages of kind `see` share. Sums are in double, in ascending order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "methods/see.h"

namespace kvgauge {

// Indices of the `count` largest, largest first; equals in ascending order.
std::vector<int32_t> LargestFirst(std::span<const float> values, int64_t count);
// Mean over heads of the attention that patches get: [patches].
std::vector<float> MeanAttention(const TileView& tile);
// Rows [n, width] of length 1, each divided by its length plus `added`, at least `least`.
std::vector<float> OfUnitLength(std::span<const float> rows, int64_t width, double added = 0,
                                double least = 0);
double Dot(std::span<const float> a, std::span<const float> b);
inline std::span<const float> RowAt(std::span<const float> rows, int64_t row, int64_t width) {
  return rows.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
}

}  // namespace kvgauge
