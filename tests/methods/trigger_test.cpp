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
}

}  // namespace
}  // namespace kvgauge
