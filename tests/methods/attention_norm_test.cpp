// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "fake_view.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// Two query heads whose last row gives entries .8 .6 0 0 and 0 0 .6 .8; the newest is protected.
// The best one, two and three leave .4, .5 and .8 of the mean norm, which is 1.
TEST(AttentionNormTest, HandWorked) {
  FakeView view(SmallShape(1, 1, 2), 5);
  const float rows[2][5] = {{0.8f, 0.6f, 0, 0, 0.9f}, {0, 0, 0.6f, 0.8f, 0.9f}};
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t e = 0; e < 5; ++e) view.At(h, 4, e) = rows[h][e];
  }
  const std::vector<float> scores = {4, 3, 2, 1, kInf};
  const auto kept = [&](const char* params) {
    const auto stage = ReducerOf("attention_norm", params);
    return Ints(ReduceWith(*stage, view, scores, {5})[0].keep);
  };
  EXPECT_THAT(kept(R"({"loss": 0.05})"), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(kept(R"({"loss": 0.25})"), ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(kept(R"({"loss": 0.55})"), ElementsAre(0, 1, 4));
  EXPECT_THAT(kept(R"({"loss": 0.65})"), ElementsAre(0, 4));
  EXPECT_THAT(kept(R"({"loss": 1})"), ElementsAre(0, 4));
  EXPECT_THAT(kept(R"({"loss": 0})"), SizeIs(5));
}

// Heads that hold fewer keep all of them, and what stands behind them counts nothing.
TEST(AttentionNormTest, HeadsOfOtherLengths) {
  FakeView view(SmallShape(1, 2, 1), 6);
  view.SetLength(1, 2);
  for (int64_t e = 0; e < 6; ++e) view.At(0, 5, e) = 0.4f;
  for (int64_t e = 0; e < 2; ++e) view.At(1, 5, e) = 0.7f;
  const std::vector<float> scores = {1, 6, 2, 5, 3, 4, 1, 2, 9, 9, 9, 9};
  const auto stage = ReducerOf("attention_norm", R"({"loss": 0.12})");
  // Norms are .98 and .99; four of six leave .8 of the first, 9 in 100 of both.
  const auto plans = ReduceWith(*stage, view, scores, {6, 2});
  EXPECT_THAT(Ints(plans[0].keep), ElementsAre(1, 3, 4, 5));
  EXPECT_THAT(Ints(plans[1].keep), ElementsAre(0, 1));
}

}  // namespace
}  // namespace kvgauge
