// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fake_view.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

TEST(FinchTest, RowsWeighedByWhatTheyCouldLookAt) {
  FakeView view(SmallShape(1, 2, 2, 8), 17);
  view.Randomize(9);
  const auto scorer = ScorerOf("finch", R"({"window": 5})");
  EXPECT_EQ(scorer->needs(), Needs{.window = 5});
  const std::vector<float> scores = ScoreWith(*scorer, view);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t j = 0; j < 12; ++j) {
      double want = 0;
      for (int64_t i = 12; i < 17; ++i) {
        want += static_cast<double>(i) * (view.At(2 * h, i, j) + view.At(2 * h + 1, i, j)) / 10;
      }
      EXPECT_NEAR(scores[h * 17 + j], want, 1e-5);
    }
    for (int64_t j = 12; j < 17; ++j) EXPECT_GT(scores[h * 17 + j], 1e20f);
  }
  FakeView few(SmallShape(), 3);
  for (const float score : ScoreWith(*scorer, few)) EXPECT_GT(score, 1e20f);
}

}  // namespace
}  // namespace kvgauge
