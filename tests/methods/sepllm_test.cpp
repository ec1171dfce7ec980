// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

TEST(SepLlmTest, SeparatorsFirstThenTheNewest) {
  FakeView view(SmallShape(1, 2), 8);
  ClassOf(view, TokenClass::kSeparator) = {0, 1, 0, 0, 1, 0, 1, 0};
  view.SetLength(1, 5);
  view.positions[1] = {0, 2, 4, 6, 7, 0, 0, 0};  // five are left
  const auto all = MakeStage<Scorer>(StageKind::kScore, "sepllm");
  EXPECT_TRUE(all->needs().token_classes);
  EXPECT_TRUE(all->any_time());
  EXPECT_THAT(ScoreWith(*all, view),
              ElementsAre(0, 1.125f, 0.25f, 0.375f, 1.5f, 0.625f, 1.75f, 0.875f,  //
                          0, 0.25f, 1.5f, 1.75f, 0.875f, 0, 0, 0));
  // The first of three is not among the newest two; where there are no more than two, all count.
  const auto two = MakeStage<Scorer>(StageKind::kScore, "sepllm", R"({"separators": 2})");
  EXPECT_THAT(ScoreWith(*two, view),
              ElementsAre(0, 0.125f, 0.25f, 0.375f, 1.5f, 0.625f, 1.75f, 0.875f,  //
                          0, 0.25f, 1.5f, 1.75f, 0.875f, 0, 0, 0));
}

}  // namespace
}  // namespace kvgauge
