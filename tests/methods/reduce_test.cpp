// SPDX-License-Identifier: Apache-2.0
// Allocators, reducers and triggers against hand-worked cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "fake_view.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(UniformTest, EveryHeadTheSame) {
  const ModelShape shape = SmallShape(3, 2);
  AllocationInput input{.shape = &shape, .length = 10, .per_head = 4};
  const auto stage = MakeStage<Allocator>(StageKind::kAllocate, "uniform");
  EXPECT_EQ(*stage->Allocate(input), Allotment(3, {4, 4}));
  input.per_head = 40;
  EXPECT_EQ(*stage->Allocate(input), Allotment(3, {10, 10}));
}

TEST(TopKTest, EachHeadItsOwn) {
  FakeView view(SmallShape(1, 2), 5);
  view.SetLength(1, 3);
  // The second head holds three entries: what stands behind them does not count.
  const std::vector<float> scores = {1, 5, kInf, 2, 5, 3, 1, 2, 9, 9};
  const std::vector<int64_t> allotted = {3, 2};
  const auto stage = MakeStage<Reducer>(StageKind::kReduce, "top_k");
  const std::vector<HeadPlan> plans =
      stage->Reduce(view, {.scores = View(scores, {2, 5}), .allotted = allotted}, nullptr);
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_THAT(Ints(plans[0].keep), ElementsAre(1, 2, 4));
  EXPECT_THAT(Ints(plans[1].keep), ElementsAre(0, 2));
  EXPECT_TRUE(plans[0].keys.empty());
  const std::vector<int64_t> all = {9, 9};
  EXPECT_THAT(
      Ints(stage->Reduce(view, {.scores = View(scores, {2, 5}), .allotted = all}, nullptr)[1].keep),
      ElementsAre(0, 1, 2));
}

TEST(TensorsTest, ComplementOfWhatIsKept) {
  FakeView view(SmallShape(), 6);
  EXPECT_THAT(Ints(Complement(view, View(std::vector<int32_t>{1, 2, 5}, {3}), 6)),
              ElementsAre(0, 3, 4));
  EXPECT_THAT(Ints(Complement(view, view.Scratch(DType::kI32, {0}), 2)), ElementsAre(0, 1));
  EXPECT_EQ(Complement(view, View(std::vector<int32_t>{0, 1}, {2}), 2).Numel(), 0);
}

TEST(Triggers, WhenTheyAct) {
  const auto once = MakeStage<Trigger>(StageKind::kTrigger, "prefill");
  EXPECT_TRUE(once->AfterPrefill());
  EXPECT_FALSE(once->AfterStep(3, 100));
  EXPECT_FALSE(once->in_decode());
  const auto every = MakeStage<Trigger>(StageKind::kTrigger, "every_step", R"({"slack": 2})");
  EXPECT_TRUE(every->AfterPrefill());
  EXPECT_FALSE(every->AfterStep(3, 2));
  EXPECT_TRUE(every->AfterStep(3, 3));
  EXPECT_TRUE(every->in_decode());
}

}  // namespace
}  // namespace kvgauge
