// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fake_view.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

TEST(VatpTest, SumsTimesAbsoluteValuesAndGoesOn) {
  FakeView view(SmallShape(1, 2, 2, 8), 21);
  view.Randomize(8);
  const auto scorer = ScorerOf("vatp");
  EXPECT_TRUE(scorer->ages());
  EXPECT_EQ(scorer->needs(), (Needs{.column_sums = true, .step_attention = true}));
  const std::vector<float> scores = ScoreWith(*scorer, view);
  view.step = RandomValues(4 * 21, 4);
  std::vector<float> later = scores;
  scorer->Age(view, View(later, {2, 21}));
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t j = 0; j < 21; ++j) {
      double attention = 0;
      for (int64_t i = j; i < 21; ++i) attention += view.At(2 * h, i, j) + view.At(2 * h + 1, i, j);
      const double size = Sum(view.values[h], j, 8, Absolute);
      EXPECT_NEAR(scores[h * 21 + j], attention * size, 1e-4);
      attention += view.step[2 * h * 21 + j] + view.step[(2 * h + 1) * 21 + j];
      EXPECT_NEAR(later[h * 21 + j], attention * size, 1e-4);
    }
  }
}

}  // namespace
}  // namespace kvgauge
