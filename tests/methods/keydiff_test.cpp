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

TEST(KeyDiffTest, TheOneThatDiffersComesFirst) {
  FakeView view(SmallShape(1, 2, 1, 2), 4);
  view.keys[0] = {1, 0, 5, 0, -3, 0, 2, 0};  // lengths do not matter
  view.keys[1] = {0, 1, 0, 2, 1, 0, 9, 9};
  view.SetLength(1, 3);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "keydiff");
  const std::vector<float> scores = ScoreWith(*scorer, view);
  EXPECT_TRUE(AllWithin(std::span(scores).first(4), std::vector<float>{-1, -1, 1, -1}, 1e-6));
  // The anchor is (1, 2) / 3; what lies beyond a head's length has no part in it.
  const float twice = 2 / std::sqrt(5.0f), once = 1 / std::sqrt(5.0f);
  EXPECT_TRUE(
      AllWithin(std::span(scores).subspan(4, 3), std::vector<float>{-twice, -twice, -once}, 1e-6));
}

}  // namespace
}  // namespace kvgauge
