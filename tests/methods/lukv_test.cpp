// SPDX-License-Identifier: Apache-2.0
// LU-KV: what heads hold by a curve, and without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "methods/calibration.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kLearned = R"({"calibration": "f"})";

// Two layers of two heads: at every percent heads give up that share, but at 60 percent these.
std::shared_ptr<Calibration> CurveOf(const std::vector<float>& at_60) {
  auto calibration = std::make_shared<Calibration>();
  calibration->path = "f";
  std::vector<float> curve;
  for (int percent = 1; percent <= 99; ++percent) {
    for (size_t head = 0; head < 4; ++head) {
      curve.push_back(percent == 60 ? at_60[head] : static_cast<float>(percent) / 100);
    }
  }
  calibration->tables["curve"] = {{99, 2, 2}, curve};
  return calibration;
}

Allocation HeldBy(const std::vector<float>& at_60, int64_t per_head) {
  const auto stage = MakeStage<Allocator>(StageKind::kAllocate, "lukv", kLearned);
  stage->Use(CurveOf(at_60));
  const ModelShape shape = SmallShape(2, 2);
  EXPECT_TRUE(stage->Check(shape).ok());
  EXPECT_FALSE(stage->needs_scores());
  const Result<Allocation> allocation = stage->Allocate(
      {.shape = &shape, .length = 100, .per_head = per_head, .protected_entries = 8});
  EXPECT_TRUE(allocation.ok());
  return *allocation;
}

TEST(LuKvTest, HeadsHoldWhatTheCurveLeaves) {
  EXPECT_THAT(HeldBy({0.8f, 0.6f, 0.4f, 0.6f}, 40),
              ElementsAre(ElementsAre(20, 40), ElementsAre(60, 40)));
  // Protected entries stay, and what they take is missing elsewhere.
  EXPECT_THAT(HeldBy({1, 0.6f, 0.2f, 0.6f}, 40),
              ElementsAre(ElementsAre(8, 38), ElementsAre(76, 38)));
  // The nearest percent speaks for a budget between two.
  EXPECT_THAT(HeldBy({0.8f, 0.6f, 0.4f, 0.6f}, 41),
              ElementsAre(ElementsAre(41, 41), ElementsAre(41, 41)));
  EXPECT_THAT(HeldBy({0.8f, 0.6f, 0.4f, 0.6f}, 100),
              ElementsAre(ElementsAre(100, 100), ElementsAre(100, 100)));
}

TEST(LuKvTest, RefusesWhatIsNoCurve) {
  const auto stage = MakeStage<Allocator>(StageKind::kAllocate, "lukv", kLearned);
  stage->Use(CurveOf({0, 0, 1.5f, 0}));
  EXPECT_THAT(stage->Check(SmallShape(2, 2)).error().message,
              HasSubstr("f: table 'curve' holds 1.5"));
  EXPECT_THAT(stage->Check(SmallShape(2, 3)).error().message, HasSubstr("99, 2, 3"));
}

// The least of a head counts for nothing: 0.1, 0.9 and 0 of the first head, 1, 0 and 0 of the
// second are the shares of what may go.
TEST(LuKvTest, WithoutACurveByTheScores) {
  FakeView view(SmallShape(1, 2), 5);
  const std::vector<float> scores = {kInf, 3, 11, 2, kInf, kInf, 44, 33, 33, kInf};
  const Tensor tensor = View(scores, {2, 5});
  LayerView* views[] = {&view};
  const auto stage = MakeStage<Allocator>(StageKind::kAllocate, "lukv", "{}");
  EXPECT_TRUE(stage->needs_scores());
  const ModelShape shape = view.shape();
  const auto held = [&](int64_t per_head) {
    return *stage->Allocate({.shape = &shape,
                             .length = 5,
                             .per_head = per_head,
                             .protected_entries = 2,
                             .scores = {&tensor, 1},
                             .views = views});
  };
  EXPECT_THAT(held(2), ElementsAre(ElementsAre(2, 2)));
  EXPECT_THAT(held(3), ElementsAre(ElementsAre(3, 3)));
  EXPECT_THAT(held(4), ElementsAre(ElementsAre(5, 3)));
  EXPECT_THAT(held(5), ElementsAre(ElementsAre(5, 5)));
}

}  // namespace
}  // namespace kvgauge
