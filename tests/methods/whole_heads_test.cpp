// SPDX-License-Identifier: Apache-2.0
// Budgets under which some heads hold everything, and the entry that stands for what others give
// up.
#include <gmock/gmock.h>

#include <cmath>

#include "methods/fake_view.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

constexpr float kAlways = std::numeric_limits<float>::infinity();

TEST(CompensateTest, TheFirstThatGoesStandsForAllThatGo) {
  FakeView view(SmallShape(1, 1, 1, 2), 6);
  std::vector<float> scores = {kAlways, 1, 2, 3, 4, kAlways};
  const auto stage = MakeStage<Reducer>(StageKind::kReduce, "compensate");
  const int64_t allocated[] = {4};
  const HeadPlan plan =
      stage->Reduce(view, {.scores = View(scores, {1, 6}), .allocated = allocated}, nullptr)[0];
  // 4 stays by its score; 1, 2 and 3 go into 1.
  EXPECT_THAT(std::vector<int32_t>(plan.keep.i32(), plan.keep.i32() + 4), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(Floats(plan.keys.weight), ElementsAre(1.0f / 3, 1.0f / 3));
  EXPECT_FLOAT_EQ(plan.values.self.f32()[1], 1.0f / 3);
  EXPECT_THAT(Floats(plan.log_weight), ElementsAre(0, std::log(3.0f), 0, 0));
}

TEST(CompensateTest, WithoutRoomNothingStandsForOthers) {
  FakeView view(SmallShape(1, 1, 1, 2), 4);
  std::vector<float> scores = {kAlways, 1, 2, kAlways};
  const auto stage = MakeStage<Reducer>(StageKind::kReduce, "compensate");
  for (const int64_t kept : {int64_t{2}, int64_t{4}}) {
    const HeadPlan plan =
        stage->Reduce(view, {.scores = View(scores, {1, 4}), .allocated = {&kept, 1}}, nullptr)[0];
    EXPECT_EQ(plan.keep.shape[0], kept);
    EXPECT_TRUE(plan.keys.empty());
    EXPECT_TRUE(plan.log_weight.empty());
  }
}

// Layer 0 has all of its attention on two entries, layer 1 the same on each.
TEST(PrefixKvTest, LayersHoldTheSameShareOfTheirScores) {
  const ModelShape shape = SmallShape(2);
  FakeView lower(shape, 10, 0), upper(shape, 10, 1);
  std::vector<float> steep = {50, 50, 1, 1, 1, 1, 1, 1, 1, 1}, flat(10, 1.0f);
  const Tensor scores[] = {View(steep, {1, 10}), View(flat, {1, 10})};
  LayerView* const views[] = {&lower, &upper};
  const auto allocator = MakeStage<Allocator>(StageKind::kAllocate, "prefixkv");
  const Result<Allocation> allocation = allocator->Allocate(
      {.shape = &shape, .length = 10, .per_head = 6, .scores = scores, .views = views});
  // 100 of 108 and 9.26 of 10: ten entries of the upper layer and two of the lower.
  EXPECT_THAT(*allocation, ElementsAre(ElementsAre(2), ElementsAre(10)));
}

}  // namespace
}  // namespace kvgauge
