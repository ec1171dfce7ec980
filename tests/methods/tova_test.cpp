// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/strings.h"
#include "fake_view.h"
#include "methods/score_reduction.h"

namespace kvgauge {
namespace {

TEST(TovaTest, OneRowForAllHeads) {
  FakeView view(SmallShape(1, 2, 2, 16), 33);
  view.Randomize(8);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "tova");
  const std::vector<float> scores = ScoreWith(*scorer, view);
  for (int64_t j = 0; j < 33; ++j) {
    double want = 0;
    for (int64_t h = 0; h < 4; ++h) want += view.At(h, 32, j) / 4.0;
    EXPECT_NEAR(scores[j], want, 1e-6);
    EXPECT_EQ(scores[33 + j], scores[j]);
  }
  // While decoding the newest row says all.
  EXPECT_TRUE(scorer->any_time());
  view.is_decoding = true;
  std::fill(view.step.begin(), view.step.end(), 0.0f);
  view.step[2 * 33 + 5] = 1;
  const std::vector<float> later = ScoreWith(*scorer, view);
  for (int64_t i = 0; i < 66; ++i) EXPECT_EQ(later[i], i % 33 == 5 ? 0.25f : 0.0f);
}

}  // namespace
}  // namespace kvgauge
