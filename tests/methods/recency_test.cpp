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

using ::testing::ElementsAre;

TEST(Recency, CountsPositionsOfRaggedHeads) {
  FakeView view(SmallShape(1, 2), 4);
  view.positions[1] = {0, 1, 9, 0};
  view.SetLength(1, 3);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "recency");
  EXPECT_THAT(ScoreWith(*scorer, view), ElementsAre(0, 1, 2, 3, 0, 1, 9, 0));
  EXPECT_TRUE(scorer->any_time());
}

}  // namespace
}  // namespace kvgauge
