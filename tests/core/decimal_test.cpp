// SPDX-License-Identifier: Apache-2.0
#include "core/decimal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kvgauge {
namespace {

TEST(Decimal, RoundsAsPythonDoes) {
  EXPECT_EQ(RoundDecimal(0.125, 2), 0.12);
  EXPECT_EQ(RoundDecimal(0.375, 2), 0.38);
  EXPECT_EQ(RoundDecimal(2.675, 2), 2.67);
  EXPECT_EQ(RoundDecimal(-2.5, 0), -2);
  EXPECT_EQ(RoundDecimal(1e300, 2), 1e300);
  EXPECT_EQ(RoundDecimal(1.0 / 3, -1), 1.0 / 3);
  EXPECT_TRUE(std::isnan(RoundDecimal(std::numeric_limits<double>::quiet_NaN(), 2)));
}

}  // namespace
}  // namespace kvgauge
