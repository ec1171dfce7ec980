// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "fake_view.h"
#include "methods/calibration.h"
#include "methods/split_by_weight.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

// Attention of the last row: `far` of it on entry 10, the rest on the first and the last.
FakeView LayerThatLooks(const ModelShape& shape, double far) {
  FakeView view(shape, 40);
  for (int64_t h = 0; h < shape.query_heads; ++h) {
    view.At(h, 39, 10) = static_cast<float>(far);
    view.At(h, 39, 0) = view.At(h, 39, 39) = static_cast<float>((1 - far) / 2);
    view.At(h, 38, 10) = 1;  // not looked at
  }
  return view;
}

TEST(SimLayerKvTest, TheLaziestGiveUpWhatTheBudgetAsks) {
  const ModelShape shape = SmallShape(4, 2, 2);
  FakeView a = LayerThatLooks(shape, 0.3), b = LayerThatLooks(shape, 0.1);
  FakeView c = LayerThatLooks(shape, 0.9), d = LayerThatLooks(shape, 0.2);
  LayerView* const views[] = {&a, &b, &c, &d};
  const auto stage =
      MakeStage<Allocator>(StageKind::kAllocate, "simlayerkv", R"({"sinks": 2, "recent": 7})");
  EXPECT_EQ(stage->needs(), (Needs{.window = 1}));
  AllocationInput input{
      .shape = &shape, .length = 40, .per_head = 24, .protected_entries = 2, .views = views};
  // Lazy layers hold 2 + 7 - 1 = 8: two of 40 and two of 8 are 96.
  EXPECT_EQ(*stage->Allocate(input), (Allocation{{40, 40}, {8, 8}, {40, 40}, {8, 8}}));
  input.per_head = 23;
  EXPECT_EQ(*stage->Allocate(input), (Allocation{{8, 8}, {8, 8}, {40, 40}, {8, 8}}));
  input.per_head = 40;
  EXPECT_EQ(*stage->Allocate(input), Allocation(4, {40, 40}));
  input.per_head = 8;
  EXPECT_TRUE(stage->CheckBudget(input).ok());
  EXPECT_EQ(*stage->Allocate(input), Allocation(4, {8, 8}));
  input.per_head = 7;
  const Status refused = stage->CheckBudget(input);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("hold 8 entries"));
  EXPECT_THAT(refused.error().message, HasSubstr("allocate.recent"));
  EXPECT_EQ(*stage->Allocate(input), Allocation(4, {7, 7}));  // a prompt shorter than planned
}

TEST(SimLayerKvTest, MoreRowsAreAveraged) {
  const ModelShape shape = SmallShape(2);
  FakeView a = LayerThatLooks(shape, 0.3), b = LayerThatLooks(shape, 0.4);
  b.At(0, 38, 10) = 0;
  b.At(0, 38, 38) = 1;
  LayerView* const views[] = {&a, &b};
  const AllocationInput input{.shape = &shape, .length = 40, .per_head = 24, .views = views};
  for (const auto& [window, lazy] : {std::pair{1, 0}, std::pair{2, 1}}) {
    const auto stage =
        MakeStage<Allocator>(StageKind::kAllocate, "simlayerkv",
                             StrCat(R"({"sinks": 2, "recent": 7, "window": )", window, "}"));
    const Allocation got = *stage->Allocate(input);
    EXPECT_EQ(got[static_cast<size_t>(lazy)][0], 8);
    EXPECT_EQ(got[static_cast<size_t>(1 - lazy)][0], 40);
  }
}

}  // namespace
}  // namespace kvgauge
