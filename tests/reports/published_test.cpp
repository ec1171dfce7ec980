// SPDX-License-Identifier: Apache-2.0
#include "reports/published.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace kvgauge {
namespace {

Estimate Of(double value, double error) {
  return {.value = value,
          .interval = {value - 1.96 * error, value + 1.96 * error},
          .standard_error = error,
          .samples = 200,
          .clusters = 200};
}

Agreement AgreementOf(const Estimate& ours, double theirs, double margin) {
  const PublishedPair pair = {.ours = ours, .theirs = theirs, .rounding = 0.005, .margin = margin};
  return CompareWithPublished({&pair, 1}, 0.05)[0].agreement;
}

TEST(PublishedTest, AgreesOnlyWhereTheWholeIntervalIsWithinTheMargin) {
  EXPECT_EQ(AgreementOf(Of(40, 0.2), 40.3, 1), Agreement::kAgrees);
  EXPECT_EQ(AgreementOf(Of(40, 0.6), 40.3, 1), Agreement::kUndecided);
  // A difference that is real and does not matter agrees.
  EXPECT_EQ(AgreementOf(Of(40, 0.05), 40.5, 1), Agreement::kAgrees);
}

TEST(PublishedTest, DiffersOnlyBeyondTheRounding) {
  EXPECT_EQ(AgreementOf(Of(40, 1), 45, 1), Agreement::kDiffers);
  EXPECT_EQ(AgreementOf(Of(40, 3), 45, 1), Agreement::kUndecided);
  const PublishedPair pair = {.ours = Of(40, 0.001), .theirs = 40.3, .rounding = 0.5, .margin = 0};
  EXPECT_EQ(CompareWithPublished({&pair, 1}, 0.05)[0].agreement, Agreement::kUndecided);
}

TEST(PublishedTest, EqualScoresCanDiffer) {
  // All samples score 0: there is no spread, and the interval ends at what they cannot rule out.
  const Estimate none = {.value = 0, .interval = {0, 36.9}, .standard_error = 0, .samples = 8};
  EXPECT_EQ(AgreementOf(none, 90, 1), Agreement::kDiffers);
  EXPECT_EQ(AgreementOf(none, 20, 1), Agreement::kUndecided);
}

TEST(PublishedTest, OneSampleDecidesNothing) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Estimate one = {.value = 0, .interval = {-infinity, infinity}, .samples = 1};
  EXPECT_EQ(AgreementOf(one, 90, 1), Agreement::kUndecided);
  const Estimate wrong = {.value = std::nan(""), .interval = {std::nan(""), std::nan("")}};
  EXPECT_EQ(AgreementOf(wrong, 90, 1), Agreement::kUndecided);
}

TEST(PublishedTest, ManyCellsAreCorrectedTogether) {
  // Two and a half standard errors: enough alone, not among a hundred.
  const PublishedPair near = {.ours = Of(40, 1), .theirs = 42.5, .rounding = 0, .margin = 0.1};
  EXPECT_EQ(CompareWithPublished({&near, 1}, 0.05)[0].agreement, Agreement::kDiffers);
  std::vector<PublishedPair> pairs(100, {.ours = Of(40, 1), .theirs = 40, .margin = 0.1});
  pairs[7] = near;
  const std::vector<PublishedComparison> all = CompareWithPublished(pairs, 0.05);
  EXPECT_EQ(all[7].agreement, Agreement::kUndecided);
  EXPECT_NEAR(all[7].p, 0.0124, 1e-4);
  EXPECT_GT(all[7].p_adjusted, 0.9);
}

TEST(PublishedTest, AverageOfTasks) {
  const std::vector<Estimate> tasks = {Of(10, 3), Of(20, 4)};
  const Estimate mean = MeanOfEstimates(tasks, 0.95);
  EXPECT_DOUBLE_EQ(mean.value, 15);
  EXPECT_DOUBLE_EQ(mean.standard_error, 2.5);
  EXPECT_NEAR(mean.interval.high, 15 + 1.959964 * 2.5, 1e-5);
  EXPECT_EQ(mean.samples, 400);
  const Estimate alone = MeanOfEstimates({tasks.data(), 1}, 0.95);
  EXPECT_DOUBLE_EQ(alone.interval.low, tasks[0].interval.low);
}

TEST(PublishedTest, ChangeKeepsItsInterval) {
  Evidence evidence;
  evidence.value = -3;
  evidence.interval = {-5, -1};
  evidence.samples = 9;
  evidence.clusters = 7;
  const Estimate change = ChangeEstimate(evidence, 0.95);
  EXPECT_DOUBLE_EQ(change.value, -3);
  EXPECT_DOUBLE_EQ(change.interval.low, -5);
  EXPECT_NEAR(change.standard_error, 4 / (2 * 1.959964), 1e-6);
  EXPECT_EQ(change.clusters, 7);
}

TEST(PublishedTest, WordsStay) {
  EXPECT_EQ(NameOf(Agreement::kAgrees), "agrees");
  EXPECT_EQ(NameOf(Agreement::kDiffers), "differs");
  EXPECT_EQ(NameOf(Agreement::kUndecided), "undecided");
}

}  // namespace
}  // namespace kvgauge
