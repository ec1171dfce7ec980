// SPDX-License-Identifier: Apache-2.0
#include "methods/tile_math.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvgauge {

std::vector<int32_t> LargestFirst(std::span<const float> values, int64_t count) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto most = std::min(count, std::ssize(values));
  std::partial_sort(order.begin(), order.begin() + most, order.end(), [&](int32_t a, int32_t b) {
    const float x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  order.resize(static_cast<size_t>(most));
  return order;
}

std::vector<float> MeanAttention(const TileView& tile) {
  std::vector<float> mean(static_cast<size_t>(tile.patches));
  for (int64_t i = 0; i < tile.patches; ++i) {
    double sum = 0;
    for (int64_t h = 0; h < tile.heads; ++h) {
      sum += double{tile.attention[static_cast<size_t>(h * tile.patches + i)]};
    }
    mean[static_cast<size_t>(i)] = static_cast<float>(sum / static_cast<double>(tile.heads));
  }
  return mean;
}

double Dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

std::vector<float> OfUnitLength(std::span<const float> rows, int64_t width, double added,
                                double least) {
  std::vector<float> unit(rows.begin(), rows.end());
  for (size_t at = 0; at < unit.size(); at += static_cast<size_t>(width)) {
    const std::span<const float> row = rows.subspan(at, static_cast<size_t>(width));
    const double length = std::max(std::sqrt(Dot(row, row)) + added, least);
    for (size_t i = 0; i < row.size(); ++i) {
      unit[at + i] = length > 0 ? static_cast<float>(double{row[i]} / length) : 0.0f;
    }
  }
  return unit;
}

}  // namespace kvgauge
