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

using DynamicKvTest = LayerShares;

TEST_F(DynamicKvTest, DynamicKvCountsTheBestOfAll) {
  scores_[0] = {9, 8, 7, 6, 5, 1, 1, 1, 1, kInf, 9, 8, 7, 6, 5, 1, 1, 1, 1, kInf};
  scores_[1] = {4, 4, 2, 2, 2, 2, 2, 2, 2, kInf, 4, 2, 2, 2, 2, 2, 2, 2, 2, kInf};
  // The best 2 * 2 * 3 beside protected ones: ten in the lower layer, two in the upper.
  EXPECT_THAT(OfLayers("dynamickv", "{}", 4), ElementsAre(6, 2));
  EXPECT_THAT(OfLayers("dynamickv", R"({"most": 1.2})", 4), ElementsAre(5, 3));
  EXPECT_THAT(OfLayers("dynamickv", "{}", 10), ElementsAre(10, 10));
  EXPECT_THAT(OfLayers("dynamickv", "{}", 1), ElementsAre(1, 1));
  std::swap(scores_[0], scores_[1]);
  EXPECT_THAT(OfLayers("dynamickv", "{}", 4), ElementsAre(2, 6));
}

}  // namespace
}  // namespace kvgauge
