// SPDX-License-Identifier: Apache-2.0
#include "src/cli/print.h"

#include <gtest/gtest.h>

#include <limits>

namespace kvgauge {
namespace {

TEST(Print, TimesHaveUnitsThatAPersonReads) {
  EXPECT_EQ(TimesText({}), "");
  EXPECT_EQ(TimesText({0, 4e-5, 1.2e-3}), "0.00 / 0.04 / 1.2 ms");
  EXPECT_EQ(TimesText({0.0085, 0.012, 0.0999}), "8.5 / 12.0 / 99.9 ms");
  EXPECT_EQ(TimesText({0.0121, 0.85, 2.5}), "12.1 / 850 ms / 2.50 s");
  EXPECT_EQ(TimesText({0.9994, 0.9996}), "999 ms / 1.00 s");
  EXPECT_EQ(TimesText({9.99, 9.996, 99.94, 99.96}), "9.99 / 10.0 / 99.9 s / 1.7 min");
  EXPECT_EQ(TimesText({600, 6000, 86400}), "10.0 min / 1.7 / 24.0 h");
  EXPECT_EQ(TimesText({4e5, 864000, 1e9}), "4.6 / 10.0 / 11574 days");
  EXPECT_EQ(TimesText({std::numeric_limits<double>::infinity()}), "inf days");
}

}  // namespace
}  // namespace kvgauge
