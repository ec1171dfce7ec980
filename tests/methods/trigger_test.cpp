// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

TEST(Triggers, WhenTheyAct) {
  const auto once = MakeStage<Trigger>(StageKind::kTrigger, "prefill");
  EXPECT_TRUE(once->AfterPrefill());
  EXPECT_FALSE(once->AfterStep(3, 100));
  EXPECT_FALSE(once->in_decode());
  const auto every = MakeStage<Trigger>(StageKind::kTrigger, "every_step", R"({"slack": 2})");
  EXPECT_TRUE(every->AfterPrefill());
  EXPECT_FALSE(every->AfterStep(3, 2));
  EXPECT_TRUE(every->AfterStep(3, 3));
  EXPECT_TRUE(every->in_decode());
  EXPECT_FALSE(every->budget_grows());
  const auto share =
      MakeStage<Trigger>(StageKind::kTrigger, "every_step", R"({"growth": "share"})");
  EXPECT_TRUE(share->budget_grows());
  const auto interval = MakeStage<Trigger>(StageKind::kTrigger, "interval", R"({"steps": 4})");
  EXPECT_TRUE(interval->AfterPrefill());
  EXPECT_FALSE(interval->AfterStep(4, 0));
  EXPECT_TRUE(interval->AfterStep(4, 1));
  EXPECT_FALSE(interval->AfterStep(5, 2));
  EXPECT_TRUE(interval->AfterStep(8, 5));
  EXPECT_FALSE(interval->allocates_again());
  const auto late =
      MakeStage<Trigger>(StageKind::kTrigger, "interval", R"({"prompt": false, "again": true})");
  EXPECT_FALSE(late->AfterPrefill());
  EXPECT_TRUE(late->allocates_again());
}

}  // namespace
}  // namespace kvgauge
