// SPDX-License-Identifier: Apache-2.0
// Statistics of scores, pure and seeded: the same input gives the same output on every machine.
//
// Samples of one context are not independent, so every function takes a cluster number beside each
// value (ClusterNumbers) and treats clusters as the units that were drawn. "Paired" refers to the
// differences of two methods on the same samples.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct Interval {
  double low = 0;
  double high = 0;
};

struct Estimate {
  double value = 0;
  Interval interval;          // infinite for fewer than two clusters
  double standard_error = 0;  // cluster-robust
  int64_t samples = 0;
  int64_t clusters = 0;
};

struct ResamplingOptions {
  double confidence = 0.95;
  int64_t resamples = 10000;
  uint64_t seed = 0;
  // How far from the mean a cluster could lie that the sample by chance has none of (1 for scores
  // from 0 to 1 and their differences). An interval is never narrower than the number of clusters
  // can rule out: 100 equal scores do not prove that the next is equal. 0: no such bound.
  double reach = 0;
};

// The same number for the same text, in order of appearance.
std::vector<int64_t> ClusterNumbers(std::span<const std::string> groups);

// The mean and its BCa interval, by bootstrap over clusters (Efron 1987; acceleration by jackknife
// over clusters). Above 2,000 clusters, the cluster-robust normal interval, which is then
// practically the same.
Estimate MeanInterval(std::span<const double> values, std::span<const int64_t> clusters,
                      const ResamplingOptions& options = {});

// Exact McNemar test, two-sided: `won` pairs went up, `lost` went down.
double McNemarExact(int64_t won, int64_t lost);

// Paired permutation test of mean difference 0, two-sided: the signs of whole clusters are flipped.
// All flips are enumerated up to 20 clusters that differ; beyond that the tail is computed by
// saddlepoint approximation, which has no smallest possible value, unlike drawn flips.
double SignFlipTest(std::span<const double> differences, std::span<const int64_t> clusters);

// "<0.001", "0.012", "1": a p-value in a line of text.
std::string PText(double p);
// "p < 0.001", "p = 0.012", "p = 1": the same in a sentence.
std::string PSentence(double p);

// Holm's adjusted p-values, in the order given.
std::vector<double> HolmAdjust(std::span<const double> p_values);

// The smallest true difference that a two-sided test at `alpha` finds with probability `power`;
// infinite if so few samples cannot find any difference that `reach` (0: unknown) allows.
double MinimumDetectableEffect(const Estimate& difference, double reach, double alpha = 0.05,
                               double power = 0.8);

// Means of two independent samples (Welch), for repeated measurements.
struct TwoSampleResult {
  double difference = 0;  // second minus first
  Interval interval;
  double p = 1;
  double standard_error = 0;
};
TwoSampleResult WelchTest(std::span<const double> first, std::span<const double> second,
                          double confidence = 0.95);

// The mean of independent measurements and its interval by Student's t; infinite for fewer than
// two.
Estimate MeasuredMean(std::span<const double> values, double confidence = 0.95);

// One number for a method over its budgets: the mean height of the curve of score over log(bytes)
// between `low_bytes` and `high_bytes`, by straight lines between the budgets measured. Scores are
// paired: all points hold the same samples in the same order. The interval takes bytes as fixed.
struct BudgetPoint {
  double bytes = 0;  // mean, or a ratio to the full cache: any unit, the same everywhere
  std::vector<double> scores;
};
// A range that the points do not cover is an error: nothing is extrapolated.
Result<Estimate> AreaOverLogBytes(std::span<const BudgetPoint> points,
                                  std::span<const int64_t> clusters, double low_bytes,
                                  double high_bytes, const ResamplingOptions& options = {});

// The outcome of a comparison. Written to files and read by scripts: do not change the words.
enum class Verdict { kSame, kBetter, kWorse, kUndecided };
std::string_view NameOf(Verdict verdict);

// Candidate minus baseline, signed so that positive is better.
struct Evidence {
  double value = 0;
  Interval interval;      // at 1 - alpha
  Interval equivalence;   // at 1 - 2 alpha: two one-sided tests (TOST) at alpha
  double p = 1;           // of no difference, two-sided, before correction for multiplicity
  double detectable = 0;  // minimum detectable effect at 80% power
  int64_t samples = 0;
  int64_t clusters = 0;
  // Clusters that differ. If there are none, no data could have shown a difference, and the
  // correction for multiplicity may leave the comparison out (Tarone 1990).
  int64_t differing = 0;
  std::string test;  // which test gave p
};

// McNemar's test if every score is 0 or 1 and every sample is its own cluster, else sign flips.
Evidence ComparePaired(std::span<const double> baseline, std::span<const double> candidate,
                       std::span<const int64_t> clusters, double alpha,
                       const ResamplingOptions& options);

struct VerdictLimits {
  double alpha = 0.05;
  double margin = 0;     // differences up to this are equivalent
  double tolerance = 0;  // worse or better must be beyond this, with confidence 1 - alpha
};
// Equivalence first: a difference may be real and too small to matter. `p_adjusted` is corrected
// over the comparisons made together; equivalence is not corrected.
Verdict Decide(const Evidence& evidence, double p_adjusted, const VerdictLimits& limits);

}  // namespace kvgauge
