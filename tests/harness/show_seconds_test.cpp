// SPDX-License-Identifier: Apache-2.0
// Times in tables: units and digits.
#include <gtest/gtest.h>

#include "src/results/leaderboard_fields.h"

namespace kvgauge {
namespace {

// A time that rounds to 1000 of a unit is 1 of the next.
TEST(ShowSecondsTest, RoundsIntoTheNextUnit) {
  EXPECT_EQ(ShowSeconds(0.9994), "999 ms");
  EXPECT_EQ(ShowSeconds(0.9996), "1.00 s");
  EXPECT_EQ(ShowSeconds(1), "1.00 s");
  EXPECT_EQ(ShowSeconds(0.0009994), "999 us");
  EXPECT_EQ(ShowSeconds(0.0009996), "1.00 ms");
  EXPECT_EQ(ShowSeconds(0.001), "1.00 ms");
}

TEST(ShowSecondsTest, KeepsThreeDigits) {
  EXPECT_EQ(ShowSeconds(0.00001234), "12 us");
  EXPECT_EQ(ShowSeconds(0.01234), "12.34 ms");
  EXPECT_EQ(ShowSeconds(0.1234), "123 ms");
  EXPECT_EQ(ShowSeconds(12.341), "12.34 s");
  EXPECT_EQ(ShowSeconds(123.4), "123 s");
}

}  // namespace
}  // namespace kvgauge
