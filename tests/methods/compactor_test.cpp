// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "fake_view.h"
#include "methods/compactor_scores.h"
#include "methods/tensors.h"
#include "stage_calls.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

constexpr int64_t kCompactorTokens = 40, kCompactorDim = 4;

std::vector<float> Leverage(FakeView& view, int64_t sketch) {
  return ScoreWith(*ScorerOf("leverage", StrCat(R"({"sketch": )", sketch, "}")), view);
}

// Mean 0 and variance 1 over all heads together, not head by head.
TEST(CompactorTest, HalvesAreStandardisedOverTheLayer) {
  FakeView view(SmallShape(2, 2, 1, kCompactorDim), kCompactorTokens);
  view.Randomize(3);
  for (float& x : view.values[1]) x *= 3;
  for (const char* id : {"noncausal", "leverage"}) {
    const std::vector<float> scores = ScoreWith(*ScorerOf(id, "{}"), view);
    ASSERT_EQ(std::ssize(scores), 2 * kCompactorTokens) << id;
    double sum = 0, squares = 0;
    for (const float x : scores) {
      sum += x;
      squares += double{x} * x;
    }
    EXPECT_NEAR(sum, 0, 1e-3) << id;
    EXPECT_NEAR(squares / (2 * kCompactorTokens - 1), 1, 1e-4) << id;
  }
  const std::vector<float> scores = ScoreWith(*ScorerOf("noncausal", "{}"), view);
  const double first = std::accumulate(scores.begin(), scores.begin() + kCompactorTokens, 0.0);
  EXPECT_LT(first, -10);  // the other head's values are longer
}

// Before pooling a chunk has no order: the same entries in another one get the same attention.
TEST(CompactorTest, ChunksHaveNoOrder) {
  FakeView view(SmallShape(1, 1, 1, kCompactorDim), 8);
  view.Randomize(4);
  const ChunkAttention of = {.rows = 8};
  const std::vector<float> before = Floats(view.ChunkSums(of));
  const auto swap = [&](std::vector<float>& rows) {
    std::swap_ranges(rows.begin(), rows.begin() + kCompactorDim, rows.begin() + 5 * kCompactorDim);
  };
  swap(view.keys[0]);
  swap(view.queries);
  const std::vector<float> after = Floats(view.ChunkSums(of));
  EXPECT_NEAR(after[0], before[5], 1e-5);
  EXPECT_NEAR(after[5], before[0], 1e-5);
  EXPECT_NEAR(std::accumulate(after.begin(), after.end(), 0.0), 8, 1e-4);
}

// The one key that has a direction of its own is above all others, and equal keys score alike; in
// random directions as in all of them.
TEST(CompactorTest, LeverageFindsTheDirectionOfOneKey) {
  FakeView view(SmallShape(1, 1, 1, kCompactorDim), kCompactorTokens);
  for (int64_t i = 0; i < kCompactorTokens; ++i) {
    view.keys[0][i * kCompactorDim] = static_cast<float>(i % 5);
    view.keys[0][i * kCompactorDim + 1] = static_cast<float>(i % 3);
  }
  view.keys[0][17 * kCompactorDim + 2] = 2;
  for (const int64_t sketch : {0, 3, 48}) {
    const std::vector<float> scores = Leverage(view, sketch);
    EXPECT_EQ(std::max_element(scores.begin(), scores.end()) - scores.begin(), 17) << sketch;
    EXPECT_EQ(scores[0], scores[15]);
    EXPECT_EQ(scores[7], scores[22]);
  }
}

TEST(CompactorTest, DrawsOncePerSampleLayerAndHead) {
  FakeView view(SmallShape(2, 2, 1, kCompactorDim), kCompactorTokens),
      other(SmallShape(2, 2, 1, kCompactorDim), kCompactorTokens, 0, 2);
  view.Randomize(5);
  other.Randomize(5);
  other.keys[1] = other.keys[0];
  const std::vector<float> scores = Leverage(view, 3), again = Leverage(view, 3);
  EXPECT_TRUE(SameBits(again, scores));
  const std::vector<float> drawn = Leverage(other, 3);
  EXPECT_FALSE(SameBits(drawn, scores));
  EXPECT_FALSE(std::equal(drawn.begin(), drawn.begin() + kCompactorTokens,
                          drawn.begin() + kCompactorTokens));
}

TEST(CompactorTest, EndsStayAndAreInNeitherHalf) {
  FakeView view(SmallShape(2, 1, 1, kCompactorDim), kCompactorTokens);
  view.Randomize(6);
  const auto scorer = ScorerOf("compactor", R"({"sinks": 3, "last": 2, "chunk": 7})");
  const std::vector<float> before = ScoreWith(*scorer, view);
  for (const int64_t i : {0, 1, 2, 38, 39}) {
    EXPECT_GE(before[i], kForcedFrom);
    for (int64_t c = 0; c < kCompactorDim; ++c) view.keys[0][i * kCompactorDim + c] += 9;
  }
  EXPECT_TRUE(SameBits(ScoreWith(*scorer, view), before));
  FakeView brief(SmallShape(2, 1, 1, kCompactorDim), 4);
  brief.Randomize(7);
  EXPECT_THAT(ScoreWith(*scorer, brief), ::testing::Each(::testing::Ge(kForcedFrom)));
}

TEST(CompactorTest, RefusesLatentKeys) {
  ModelShape shape = SmallShape(2, 2, 1, kCompactorDim);
  shape.latent_dim = 8;
  for (const char* id : {"leverage", "compactor"}) {
    const Status legal = ScorerOf(id, "{}")->Check(shape);
    ASSERT_FALSE(legal.ok());
    EXPECT_NE(legal.error().message.find("before rotation"), std::string::npos);
  }
}

}  // namespace
}  // namespace kvgauge
