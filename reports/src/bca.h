// SPDX-License-Identifier: Apache-2.0
// The parts of bootstrap intervals that one mean and many means share.
#pragma once

#include <cstdint>
#include <span>

#include "reports/statistics.h"

namespace kvgauge {

// Beyond it intervals are normal.
inline constexpr int64_t kMaxBootstrapClusters = 2000;
// The stream of the seed that picks clusters.
inline constexpr uint64_t kBootstrapStream = 1;

// Bias-corrected and accelerated (Efron 1987), of sorted means of resamples.
Interval BcaInterval(std::span<const double> sorted_means, double mean, double acceleration,
                     double tail);
// The acceleration: a sixth of the skewness of jackknife deviations.
double Skewness(std::span<const double> deviations);
// The largest share of clusters of a kind that `clusters` draws show none of, at tail probability
// `tail`: the exact form of the rule of three.
double UnseenShare(int64_t clusters, double tail);

}  // namespace kvgauge
