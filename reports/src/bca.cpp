// SPDX-License-Identifier: Apache-2.0
#include "src/bca.h"

#include <algorithm>
#include <cmath>

#include "src/distributions.h"

namespace kvgauge {
namespace {

// Quantile of sorted values at probability p, by linear interpolation (type 7).
double SortedQuantile(std::span<const double> sorted, double p) {
  const double position = std::clamp(p, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Interval BcaInterval(std::span<const double> sorted_means, double mean, double acceleration,
                     double tail) {
  const auto [first, last] = std::ranges::equal_range(sorted_means, mean);
  const auto less = static_cast<double>(first - sorted_means.begin());
  const double below = less + 0.5 * static_cast<double>(last - first);
  const double share = std::clamp(below / static_cast<double>(sorted_means.size()), 1e-6, 1 - 1e-6);
  const double bias = NormalQuantile(share);
  const auto corrected = [&](double p) {
    const double z = bias + NormalQuantile(p);
    return SortedQuantile(sorted_means, NormalCdf(bias + z / (1 - acceleration * z)));
  };
  return {corrected(tail), corrected(1 - tail)};
}

double Skewness(std::span<const double> deviations) {
  double squares = 0, cubes = 0;
  for (const double d : deviations) {
    squares += d * d;
    cubes += d * d * d;
  }
  return squares > 0 ? cubes / (6 * std::pow(squares, 1.5)) : 0;
}

double UnseenShare(int64_t clusters, double tail) {
  return 1 - std::pow(tail, 1.0 / static_cast<double>(clusters));
}

}  // namespace kvgauge
