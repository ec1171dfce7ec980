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

TEST(KeyNormTest, ShortKeysComeFirst) {
  FakeView view(SmallShape(1, 2, 1, 2), 4);
  view.keys[0] = {3, 4, 0, 0.5f, -6, 8, 0, 0};
  view.keys[1] = {0, 2, 1, 0, 5, 12, 9, 9};
  view.SetLength(1, 3);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "knorm");
  EXPECT_EQ(scorer->needs(), Needs{});
  EXPECT_TRUE(scorer->any_time());
  const std::vector<float> scores = ScoreWith(*scorer, view);
  EXPECT_TRUE(AllWithin(std::span(scores).first(7),
                        std::vector<float>{-5, -0.5f, -10, 0, -2, -1, -13}, 1e-5));
}

}  // namespace
}  // namespace kvgauge
