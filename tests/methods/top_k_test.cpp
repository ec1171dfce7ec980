// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "methods/tensors.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

TEST(TopKTest, EachHeadItsOwn) {
  FakeView view(SmallShape(1, 2), 5);
  view.SetLength(1, 3);
  // The second head holds three entries: what stands behind them does not count.
  const std::vector<float> scores = {1, 5, kInf, 2, 5, 3, 1, 2, 9, 9};
  const auto stage = ReducerOf("top_k");
  const std::vector<HeadPlan> plans = ReduceWith(*stage, view, scores, {3, 2});
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_THAT(Ints(plans[0].keep), ElementsAre(1, 2, 4));
  EXPECT_THAT(Ints(plans[1].keep), ElementsAre(0, 2));
  EXPECT_TRUE(plans[0].keys.empty());
  EXPECT_THAT(Ints(ReduceWith(*stage, view, scores, {9, 9})[1].keep), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace kvgauge
