// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "fake_view.h"
#include "kernels/window_sums.h"
#include "methods/tensors.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

// Attention of the newest row 0.1 0.2 0.1 0.2 0.3 0.1.
FakeView CamView() {
  FakeView view(SmallShape(1, 1, 1, 2), 6);
  const std::vector<float> row = {0.1f, 0.2f, 0.1f, 0.2f, 0.3f, 0.1f};
  for (int64_t j = 0; j < 6; ++j) view.At(0, 5, j) = view.step[j] = row[j];
  view.values[0] = RandomValues(12, 9);
  return view;
}

TEST(CamTest, HandWorked) {
  FakeView view = CamView();
  const auto stage = ReducerOf("cam", R"({"merge": 2, "expectation": true})");
  EXPECT_EQ(stage->needs(), (Needs{.window = 1, .step_attention = true}));
  // Entry 1 goes: 0.2 against a mean of 0.15 is certain; entries 2 and 3 get a half each.
  for (const int64_t step : {0, 7}) {
    const HeadPlan plan = ReduceWith(*stage, view, {9, 0, 9, 9, 9, 9}, {5}, nullptr, step)[0];
    EXPECT_THAT(Ints(plan.keep), ElementsAre(0, 2, 3, 4, 5));
    EXPECT_THAT(Ints(plan.values.from), ElementsAre(1));
    EXPECT_THAT(Ints(plan.values.to), ElementsAre(2));
    EXPECT_EQ(plan.values.spread, 2);
    EXPECT_TRUE(AllWithin(Floats(plan.values.weight), std::vector<float>{0.5f}, 1e-6));
    EXPECT_TRUE(plan.keys.empty());
    EXPECT_TRUE(plan.values.self.empty());
    // Nothing is lost: what stays holds the sum of all values.
    const std::vector<double> merged = Merged(plan.values, Ints(plan.keep), view.values[0], 2);
    for (int64_t c = 0; c < 2; ++c) {
      double before = 0, after = -merged[2 + c];
      for (int64_t i = 0; i < 6; ++i) {
        before += view.values[0][2 * i + c];
        after += merged[2 * i + c];
      }
      EXPECT_NEAR(after, before, 1e-5);
    }
  }
  // Entries 2 and 5 go: 0.1 against (0.2 + 0.3) / 2; nothing follows the last one.
  const HeadPlan two = ReduceWith(*stage, view, {9, 9, 0, 9, 9, 0}, {4})[0];
  EXPECT_THAT(Ints(two.values.from), ElementsAre(2, 5));
  EXPECT_THAT(Ints(two.values.to), ElementsAre(3, -1));
  EXPECT_NEAR(Floats(two.values.weight)[0], 0.2f, 1e-6);
  // Nothing goes.
  EXPECT_TRUE(ReduceWith(*stage, view, {9, 9, 9, 9, 9, 9}, {6})[0].values.empty());
}

// A step that gives up one entry of many, against the sums of windows of all of them.
TEST(CamTest, OneOfManyHasTheMeanOfThoseThatFollow) {
  constexpr int64_t kLength = 120, kKept = kLength - 1;
  FakeView view(SmallShape(1, 1, 1, 2), kLength);
  view.step = RandomValues(kLength, 3);
  for (float& share : view.step) share = std::abs(share) / kLength;
  for (const int64_t merge : {1, 5, 32}) {
    const auto stage = ReducerOf("cam", StrCat(R"({"expectation": true, "merge": )", merge, "}"));
    for (const int64_t gone : {int64_t{0}, int64_t{40}, kLength - 3, kLength - 1}) {
      std::vector<float> scores(kLength, 9), held = view.step;
      scores[gone] = 0;
      held.erase(held.begin() + gone);
      std::vector<float> sums(kKept), spare(2 * kKept);
      WindowSums(view.ops(), View(held, {kKept, 1}), merge, WindowSide::kAhead,
                 View(spare, {2 * kKept, 1}), View(sums, {kKept, 1}));
      const MergeList list = ReduceWith(*stage, view, scores, {kKept}, nullptr, 1)[0].values;
      const bool last = gone == kKept;
      EXPECT_THAT(Ints(list.to), ElementsAre(last ? -1 : static_cast<int32_t>(gone) + 1));
      const float mean = last ? 0 : sums[gone] / static_cast<float>(std::min(merge, kKept - gone));
      const float share = std::min(view.step[gone] / (mean + 1e-30f), 1.0f);
      EXPECT_THAT(Floats(list.weight), ElementsAre(share * (1.0f / static_cast<float>(merge))));
    }
  }
}

TEST(CamTest, WithoutAttentionNothingIsAdded) {
  FakeView view(SmallShape(1, 1, 1, 2), 4);
  const auto stage = ReducerOf("cam", R"({"merge": 2, "expectation": true})");
  const HeadPlan plan = ReduceWith(*stage, view, {9, 0, 9, 9}, {3})[0];
  EXPECT_THAT(Floats(plan.values.weight), ElementsAre(0));
}

TEST(CamTest, DrawsFollowTheSeedAndTheProbability) {
  const int64_t n = 2000;
  const ModelShape shape = SmallShape(1, 1, 1, 2);
  std::vector<float> scores(n);
  const auto draws = [&](uint64_t seed) {
    FakeView view(shape, n, 0, seed);
    // Every second entry goes, with a quarter of its neighbour's attention.
    for (int64_t j = 0; j < n; ++j) {
      view.step[j] = j % 2 == 0 ? 0.25f : 1.0f;
      scores[j] = static_cast<float>(j % 2);
    }
    const auto stage = ReducerOf("cam", R"({"merge": 1})");
    return Floats(ReduceWith(*stage, view, scores, {n / 2}, nullptr, 1)[0].values.weight);
  };
  const std::vector<float> first = draws(3);
  ASSERT_EQ(first.size(), 1000u);
  double taken = 0;
  for (const float w : first) {
    ASSERT_TRUE(w == 0 || w == 1);
    taken += w;
  }
  EXPECT_NEAR(taken / 1000, 0.25, 0.05);
  EXPECT_EQ(draws(3), first);
  EXPECT_NE(draws(4), first);
}

}  // namespace
}  // namespace kvgauge
