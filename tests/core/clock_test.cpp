// SPDX-License-Identifier: Apache-2.0
#include "core/clock.h"

#include <gtest/gtest.h>

#include "core/threads.h"

namespace kvgauge {
namespace {

TEST(Clock, OthersShareIsBounded) {
  EXPECT_EQ(OthersShare({0, 0}, {1.0, 1.0}, 1.0, 2), 0.0);
  EXPECT_DOUBLE_EQ(OthersShare({0, 0}, {1.0, 2.0}, 1.0, 2), 0.5);
  EXPECT_EQ(OthersShare({0, 0}, {0.001, 0.02}, 0.002, 2), 1.0);
  EXPECT_GE(AvailableProcessors(), 1);
  EXPECT_EQ(MakeThreadSettings(3).threads, 3);
  EXPECT_EQ(MakeThreadSettings(0).threads, AvailableProcessors());
}

}  // namespace
}  // namespace kvgauge
