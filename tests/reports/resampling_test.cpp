// SPDX-License-Identifier: Apache-2.0
#include "src/resampling.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/rng.h"
#include "reports/statistics.h"

namespace kvgauge {
namespace {

TEST(Resampling, ManyColumnsAreWhatEachIsByItself) {
  Rng rng(5, 1);
  std::vector<MeanColumn> columns;
  std::vector<Estimate> wide, narrow;
  const ResamplingOptions options = {.resamples = 500, .seed = 9, .reach = 0.3};
  for (int c = 0; c < 19; ++c) {
    std::vector<double> values;
    std::vector<int64_t> clusters;
    MeanColumn::Stratum stratum;
    const int64_t count = c < 12 ? 40 : 5 * c;
    for (int64_t k = 0; k < count; ++k) {
      const int size = c % 2 == 0 ? 1 : 1 + static_cast<int>(rng.NextBelow(3));
      stratum.sums.push_back(0);
      stratum.counts.push_back(size);
      for (int i = 0; i < size; ++i) {
        values.push_back(rng.NextDouble() * rng.NextDouble());
        clusters.push_back(k);
        stratum.sums.back() += values.back();
      }
    }
    columns.push_back({{stratum}, static_cast<int64_t>(values.size())});
    wide.push_back(MeanInterval(values, clusters, options));
    ResamplingOptions at = options;
    at.confidence = 0.9;
    narrow.push_back(MeanInterval(values, clusters, at));
  }
  const std::vector<ColumnResult> results = ResampleMeans(columns, options);
  ASSERT_EQ(results.size(), wide.size());
  for (size_t c = 0; c < results.size(); ++c) {
    EXPECT_DOUBLE_EQ(results[c].estimate.value, wide[c].value);
    EXPECT_DOUBLE_EQ(results[c].estimate.standard_error, wide[c].standard_error);
    EXPECT_NEAR(results[c].estimate.interval.low, wide[c].interval.low, 1e-12) << c;
    EXPECT_NEAR(results[c].estimate.interval.high, wide[c].interval.high, 1e-12) << c;
    EXPECT_NEAR(results[c].equivalence.low, narrow[c].interval.low, 1e-12) << c;
    EXPECT_NEAR(results[c].equivalence.high, narrow[c].interval.high, 1e-12) << c;
  }
}

// Two tasks of very different size and spread: the interval of their plain mean holds the truth in
// 95 of 100 cases.
TEST(Resampling, StrataAreCovered) {
  Rng rng(6, 1);
  int covered = 0;
  constexpr int kTrials = 400;
  for (int trial = 0; trial < kTrials; ++trial) {
    MeanColumn column;
    for (const int count : {30, 120}) {
      MeanColumn::Stratum s;
      s.weight = 0.5;
      for (int i = 0; i < count; ++i) {
        s.sums.push_back(-std::log(1 - rng.NextDouble()) * (count == 30 ? 1 : 3));
        s.counts.push_back(1);
      }
      column.strata.push_back(s);
    }
    const Interval interval =
        ResampleMeans({&column, 1}, {.resamples = 500, .seed = 1})[0].estimate.interval;
    covered += interval.low <= 2.0 && 2.0 <= interval.high ? 1 : 0;
  }
  EXPECT_GE(covered, 0.92 * kTrials);
  EXPECT_LE(covered, 0.98 * kTrials);
}

TEST(Resampling, OneClusterSaysNothing) {
  MeanColumn column;
  column.strata.push_back({{3.0}, {2.0}, 1.0});
  const ColumnResult r = ResampleMeans({&column, 1}, {})[0];
  EXPECT_EQ(r.estimate.value, 1.5);
  EXPECT_TRUE(std::isinf(r.estimate.interval.high) && std::isinf(r.equivalence.low));
}

}  // namespace
}  // namespace kvgauge
