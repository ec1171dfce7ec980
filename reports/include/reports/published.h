// SPDX-License-Identifier: Apache-2.0
// Our measurements beside numbers that somebody else has printed. Pure.
//
// A printed number comes without its samples, so it counts as a constant, known to half a unit of
// its last digit; the interval is that of our mean. Where both sides used the same samples, the
// true uncertainty of the difference is smaller, and a verdict comes later than it could, not
// falsely.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "reports/statistics.h"

namespace kvgauge {

// Written to files and read by scripts: do not change the words.
enum class Agreement { kAgrees, kDiffers, kUndecided };
std::string_view NameOf(Agreement agreement);

struct PublishedPair {
  Estimate ours;        // its interval at 1 - alpha
  double theirs = 0;    // in the same units
  double rounding = 0;  // half a unit of its last digit
  double margin = 0;    // differences up to this do not matter
};

struct PublishedComparison {
  double difference = 0;  // ours minus theirs
  Interval interval;      // of the difference
  double p = 1;           // of no difference beyond the rounding, two-sided, before correction
  double p_adjusted = 1;  // Holm, over all pairs
  Agreement agreement = Agreement::kUndecided;
};

// `agrees`: the whole interval lies within the margin. `differs`: it lies outside the rounding, and
// the corrected p is below `alpha`. Otherwise, and where there is no finite interval, `undecided`.
std::vector<PublishedComparison> CompareWithPublished(std::span<const PublishedPair> pairs,
                                                      double alpha);

// The plain mean of independent estimates, as tables print averages over tasks, with a normal
// interval. Precondition: there is one.
Estimate MeanOfEstimates(std::span<const Estimate> estimates, double confidence);

// The evidence of a comparison with the full cache as an estimate of the change.
Estimate ChangeEstimate(const Evidence& evidence, double confidence);

}  // namespace kvgauge
