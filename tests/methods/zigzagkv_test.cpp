// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "chosen_entries.h"
#include "fake_view.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

using ZigZagKvTest = LayerShares;

TEST_F(ZigZagKvTest, ZigZagGoesByHowManyHoldTheMass) {
  // One entry has all of it, and nine are needed for nine tenths of ten: but one is protected, so 9
  // of 9 for the second head and 0.9 * 9 = 8.1 rounded up.
  scores_[0] = {1, 0, 0, 0, 0, 0, 0, 0, 0, kInf, 1, 0, 0, 0, 0, 0, 0, 0, 0, kInf};
  scores_[1] = {1, 1, 1, 1, 1, 1, 1, 1, 1, kInf, 1, 1, 1, 1, 1, 1, 1, 1, 1, kInf};
  // 5 on average: 1 each, and 8 by 1 to 9.
  EXPECT_THAT(OfLayers("zigzagkv", "{}", 5), ElementsAre(2, 8));
  EXPECT_THAT(OfLayers("zigzagkv", R"({"floor": 1})", 5), ElementsAre(5, 5));
  EXPECT_THAT(OfLayers("zigzagkv", R"({"floor": 0})", 5), ElementsAre(1, 9));
  // Five of the nine hold half.
  EXPECT_THAT(OfLayers("zigzagkv", R"({"floor": 0, "mass": 0.5})", 6), ElementsAre(2, 10));
  EXPECT_THAT(OfLayers("zigzagkv", "{}", 10), ElementsAre(10, 10));
  // Scores of nothing, or below it, need nothing.
  scores_[0].assign(20, -1.0f);
  scores_[1].assign(20, 0.0f);
  EXPECT_THAT(OfLayers("zigzagkv", "{}", 5), ElementsAre(5, 5));
}

}  // namespace
}  // namespace kvgauge
