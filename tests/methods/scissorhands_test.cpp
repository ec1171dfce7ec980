// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fake_view.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

TEST(ScissorhandsTest, CountsRowsThatGiveLessThanAnEqualShare) {
  FakeView view(SmallShape(1, 2, 2, 8), 23);
  view.Randomize(6);
  const auto scorer = ScorerOf("scissorhands", R"({"window": 7})");
  EXPECT_TRUE(scorer->ages());
  EXPECT_EQ(scorer->needs(), (Needs{.window = 7, .step_attention = true}));
  const std::vector<float> scores = ScoreWith(*scorer, view);
  std::vector<float> want(46);
  for (int64_t q = 0; q < 4; ++q) {
    for (int64_t i = 16; i < 23; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        if (view.At(q, i, j) < 1.0f / static_cast<float>(i + 1)) want[q / 2 * 23 + j] -= 1;
      }
    }
  }
  EXPECT_EQ(scores, want);
  EXPECT_LT(*std::min_element(want.begin(), want.end()), -1);
  // A step counts on; entries beyond a head's own are left alone.
  view.SetLength(1, 20);
  view.step = RandomValues(4 * 23, 3);
  for (float& p : view.step) p = std::abs(p) / 10;
  std::vector<float> later = scores;
  scorer->Age(view, View(later, {2, 23}));
  for (int64_t q = 0; q < 4; ++q) {
    const int64_t n = q < 2 ? 23 : 20;
    for (int64_t j = 0; j < n; ++j) {
      if (view.step[q * 23 + j] < 1.0f / static_cast<float>(n)) want[q / 2 * 23 + j] -= 1;
    }
  }
  EXPECT_EQ(later, want);
}

}  // namespace
}  // namespace kvgauge
