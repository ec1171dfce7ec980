// SPDX-License-Identifier: Apache-2.0
#include "methods/split_by_weight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numeric>

#include "fake_view.h"
#include "methods/calibration.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

TEST(CountWholeTest, AsManyAsFit) {
  EXPECT_EQ(CountWhole(4, 4 * 30, 100, 10), 0);
  EXPECT_EQ(CountWhole(4, 4 * 32 + 2, 100, 10), 1);
  EXPECT_EQ(CountWhole(4, 4 * 32 + 1, 100, 10), 0);
  EXPECT_EQ(CountWhole(4, 400, 100, 10), 4);
  EXPECT_EQ(CountWhole(4, 400, 100, 100), 4);
}

TEST(SplitByWeightTest, LargestRemaindersWithinBounds) {
  const auto shares = [](std::vector<double> weights, int64_t total, int64_t least, int64_t most) {
    return SplitByWeight(weights, total, least, most);
  };
  EXPECT_THAT(shares({1, 1, 1}, 10, 0, 10), ElementsAre(4, 3, 3));
  EXPECT_THAT(shares({5, 3, 2}, 10, 0, 10), ElementsAre(5, 3, 2));
  EXPECT_THAT(shares({100, 1, 1}, 12, 0, 8), ElementsAre(8, 2, 2));
  EXPECT_THAT(shares({100, 1, 1}, 12, 3, 12), ElementsAre(6, 3, 3));
  EXPECT_THAT(shares({0, 0}, 5, 0, 5), ElementsAre(3, 2));
  EXPECT_THAT(shares({7, 1}, 8, 4, 4), ElementsAre(4, 4));
  for (const int64_t total : {40, 57, 99, 200}) {
    const std::vector<int64_t> got = shares({0.1, 7, 2.5, 3, 0, 11}, total, 4, 50);
    EXPECT_EQ(Sum(got), total);
    for (const int64_t share : got) {
      EXPECT_GE(share, 4);
      EXPECT_LE(share, 50);
    }
  }
}

}  // namespace
}  // namespace kvgauge
