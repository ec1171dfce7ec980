// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_progress.h"

#include <gtest/gtest.h>

namespace kvgauge {
namespace {

TEST(SecondsLeft, CountsWhatRunsAsHalfDone) {
  EXPECT_DOUBLE_EQ(SecondsLeft(10, 50, 0, 25), 5);
  EXPECT_DOUBLE_EQ(SecondsLeft(10, 50, 0, 0), 0);
  // 27 cells run together and take 6 s; the first has ended, 963 are to come: 214 s in truth.
  const double left_s = SecondsLeft(5.5, 1, 26, 963);
  EXPECT_GT(left_s, 214);
  EXPECT_LT(left_s, 2 * 214);
  // All but the last: hardly anything left.
  EXPECT_LT(SecondsLeft(10, 99, 1, 0), 0.1);
}

TEST(ClockTime, HasHoursWhereThereAreSome) {
  EXPECT_EQ(ClockTime(0), "0:00");
  EXPECT_EQ(ClockTime(61.6), "1:02");
  EXPECT_EQ(ClockTime(3723), "1:02:03");
}

}  // namespace
}  // namespace kvgauge
