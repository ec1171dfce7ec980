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

TEST(Random, FollowsSeedLayerHeadAndPosition) {
  const ModelShape shape = SmallShape(2, 2);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "random");
  FakeView view(shape, 50, 0, 7), same(shape, 50, 0, 7), seed(shape, 50, 0, 8),
      layer(shape, 50, 1, 7);
  const std::vector<float> scores = ScoreWith(*scorer, view);
  EXPECT_EQ(ScoreWith(*scorer, same), scores);
  EXPECT_NE(ScoreWith(*scorer, seed), scores);
  EXPECT_NE(ScoreWith(*scorer, layer), scores);
  EXPECT_EQ(std::set<float>(scores.begin(), scores.end()).size(), 100u);
  // An entry keeps its number when others before it are gone.
  FakeView later(shape, 50, 0, 7);
  later.positions[0][0] = 30;
  EXPECT_EQ(ScoreWith(*scorer, later)[0], scores[30]);
}

}  // namespace
}  // namespace kvgauge
