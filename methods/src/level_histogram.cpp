// SPDX-License-Identifier: Apache-2.0
#include "methods/level_histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvgauge {

void LevelHistogram::Add(double x, double weight) {
  x = std::clamp(x, -1.0, 1.0);
  const auto bin = std::min<int64_t>(static_cast<int64_t>((x + 1) / 2 * kBins), kBins - 1);
  weight_[static_cast<size_t>(bin)] += weight;
  sum_[static_cast<size_t>(bin)] += weight * x;
}

// Dynamic programming over the borders between neighbouring levels. A bin counts as one number of
// its weight, at the mean of what fell into it.
std::vector<float> LevelHistogram::Best(int64_t count) const {
  double total = 0;
  for (const double w : weight_) total += w;
  // A trace of weight everywhere, so that there are always as many numbers as levels.
  const double trace = total > 0 ? 1e-9 * total / kBins : 1.0;
  // Sums over the bins before each: weight, sum, sum of squares.
  std::array<double, kBins + 1> weight = {}, sum = {}, squares = {};
  for (size_t i = 0; i < kBins; ++i) {
    const double w = weight_[i] + trace;
    const double s = sum_[i] + trace * ((static_cast<double>(i) + 0.5) * 2 / kBins - 1);
    weight[i + 1] = weight[i] + w;
    sum[i + 1] = sum[i] + s;
    squares[i + 1] = squares[i] + s * s / w;
  }
  const auto cost = [&](size_t begin, size_t end) {
    const double s = sum[end] - sum[begin];
    return squares[end] - squares[begin] - s * s / (weight[end] - weight[begin]);
  };
  const auto levels = static_cast<size_t>(count);
  std::vector<double> best(kBins + 1, std::numeric_limits<double>::infinity()), next(best);
  best[0] = 0;
  std::vector<std::vector<uint16_t>> border(levels, std::vector<uint16_t>(kBins + 1));
  for (size_t level = 0; level < levels; ++level) {
    std::fill(next.begin(), next.end(), std::numeric_limits<double>::infinity());
    for (size_t end = level + 1; end <= kBins; ++end) {
      for (size_t begin = level; begin < end; ++begin) {
        const double with = best[begin] + cost(begin, end);
        if (with >= next[end]) continue;
        next[end] = with;
        border[level][end] = static_cast<uint16_t>(begin);
      }
    }
    best.swap(next);
  }
  std::vector<float> out(levels);
  size_t end = kBins;
  for (size_t level = levels; level-- > 0;) {
    const size_t begin = border[level][end];
    out[level] = static_cast<float>((sum[end] - sum[begin]) / (weight[end] - weight[begin]));
    end = begin;
  }
  for (size_t level = 1; level < levels; ++level) {  // distinct as f32 as well
    out[level] = std::max(out[level], std::nextafter(out[level - 1], 2.0f));
  }
  return out;
}

}  // namespace kvgauge
