// SPDX-License-Identifier: Apache-2.0
#include "reports/published.h"

#include <cmath>

#include "core/check.h"
#include "src/distributions.h"

namespace kvgauge {
namespace {

double TwoSided(double distance, double standard_error) {
  if (standard_error <= 0) return distance > 0 ? 0 : 1;
  return 2 * NormalCdf(-distance / standard_error);
}

}  // namespace

std::string_view NameOf(Agreement agreement) {
  switch (agreement) {
    case Agreement::kAgrees:
      return "agrees";
    case Agreement::kDiffers:
      return "differs";
    case Agreement::kUndecided:
      break;
  }
  return "undecided";
}

std::vector<PublishedComparison> CompareWithPublished(std::span<const PublishedPair> pairs,
                                                      double alpha) {
  std::vector<PublishedComparison> all;
  std::vector<double> p_values;
  for (const PublishedPair& pair : pairs) {
    PublishedComparison one;
    one.difference = pair.ours.value - pair.theirs;
    one.interval = {pair.ours.interval.low - pair.theirs, pair.ours.interval.high - pair.theirs};
    const double beyond = std::fabs(one.difference) - pair.rounding;
    if (std::isfinite(one.interval.low) && std::isfinite(one.interval.high)) {
      const bool outside = one.interval.low > pair.rounding || one.interval.high < -pair.rounding;
      // Equal scores have no spread; what they can rule out is the interval.
      one.p = outside ? TwoSided(std::fmax(beyond, 0), pair.ours.standard_error) : 1;
    }
    p_values.push_back(one.p);
    all.push_back(one);
  }
  const std::vector<double> adjusted = HolmAdjust(p_values);
  for (size_t i = 0; i < all.size(); ++i) {
    PublishedComparison& one = all[i];
    one.p_adjusted = adjusted[i];
    if (!std::isfinite(one.interval.low) || !std::isfinite(one.interval.high)) continue;
    if (one.interval.low >= -pairs[i].margin && one.interval.high <= pairs[i].margin) {
      one.agreement = Agreement::kAgrees;
    } else if (one.p_adjusted < alpha) {
      one.agreement = Agreement::kDiffers;
    }
  }
  return all;
}

Estimate MeanOfEstimates(std::span<const Estimate> estimates, double confidence) {
  KVG_CHECK(!estimates.empty(), "the mean of no estimates");
  if (estimates.size() == 1) return estimates[0];
  Estimate mean;
  double variance = 0;
  bool finite = true;
  for (const Estimate& one : estimates) {
    mean.value += one.value;
    variance += one.standard_error * one.standard_error;
    mean.samples += one.samples;
    mean.clusters += one.clusters;
    finite = finite && std::isfinite(one.interval.low) && std::isfinite(one.interval.high);
  }
  const auto count = static_cast<double>(estimates.size());
  mean.value /= count;
  mean.standard_error = std::sqrt(variance) / count;
  const double half =
      finite ? NormalQuantile((1 + confidence) / 2) * mean.standard_error : kInfinity;
  mean.interval = {mean.value - half, mean.value + half};
  return mean;
}

Estimate ChangeEstimate(const Evidence& evidence, double confidence) {
  const double width = evidence.interval.high - evidence.interval.low;
  return {.value = evidence.value,
          .interval = evidence.interval,
          .standard_error = width / (2 * NormalQuantile((1 + confidence) / 2)),
          .samples = evidence.samples,
          .clusters = evidence.clusters};
}

}  // namespace kvgauge
