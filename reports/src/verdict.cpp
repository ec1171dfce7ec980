// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "core/check.h"
#include "reports/statistics.h"

namespace kvgauge {
namespace {

bool IsZeroOrOne(double v) { return v == 0 || v == 1; }

}  // namespace

std::string_view NameOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame:
      return "SAME";
    case Verdict::kBetter:
      return "BETTER";
    case Verdict::kWorse:
      return "WORSE";
    case Verdict::kUndecided:
      return "UNDECIDED";
  }
  return "";
}

Evidence ComparePaired(std::span<const double> baseline, std::span<const double> candidate,
                       std::span<const int64_t> clusters, double alpha,
                       const ResamplingOptions& options) {
  KVG_CHECK(baseline.size() == candidate.size(), "paired scores");
  std::vector<double> differences;
  int64_t won = 0, lost = 0;
  for (size_t i = 0; i < baseline.size(); ++i) {
    differences.push_back(candidate[i] - baseline[i]);
    won += differences.back() > 0 ? 1 : 0;
    lost += differences.back() < 0 ? 1 : 0;
  }
  ResamplingOptions at = options;
  at.confidence = 1 - alpha;
  const Estimate estimate = MeanInterval(differences, clusters, at);
  at.confidence = 1 - 2 * alpha;
  Evidence evidence;
  evidence.value = estimate.value;
  evidence.interval = estimate.interval;
  evidence.equivalence = MeanInterval(differences, clusters, at).interval;
  evidence.detectable = MinimumDetectableEffect(estimate, options.reach, alpha);
  evidence.samples = estimate.samples;
  evidence.clusters = estimate.clusters;
  std::map<int64_t, double> sums;
  for (size_t i = 0; i < differences.size(); ++i) sums[clusters[i]] += differences[i];
  evidence.differing = std::ranges::count_if(sums, [](const auto& sum) { return sum.second != 0; });
  const bool binary =
      std::ranges::all_of(baseline, IsZeroOrOne) && std::ranges::all_of(candidate, IsZeroOrOne);
  if (binary && estimate.clusters == estimate.samples) {
    evidence.p = McNemarExact(won, lost);
    evidence.test = "exact McNemar";
  } else {
    evidence.p = SignFlipTest(differences, clusters);
    evidence.test = "sign flips of clusters";
  }
  return evidence;
}

Verdict Decide(const Evidence& evidence, double p_adjusted, const VerdictLimits& limits) {
  if (evidence.samples == 0) return Verdict::kUndecided;
  if (evidence.equivalence.low >= -limits.margin && evidence.equivalence.high <= limits.margin) {
    return Verdict::kSame;
  }
  if (!(p_adjusted < limits.alpha)) return Verdict::kUndecided;
  // The exact test decides at zero; a tolerance is held against the interval.
  const bool beyond = limits.tolerance > 0;
  if (evidence.value < 0 && (!beyond || evidence.interval.high < -limits.tolerance)) {
    return Verdict::kWorse;
  }
  if (evidence.value > 0 && (!beyond || evidence.interval.low > limits.tolerance)) {
    return Verdict::kBetter;
  }
  return Verdict::kUndecided;
}

}  // namespace kvgauge
