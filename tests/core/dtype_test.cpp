// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kvgauge {
namespace {

TEST(DType, F16RoundTripsEveryPattern) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = F16ToF32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(value))));
    } else {
      EXPECT_EQ(F32ToF16(value), bits);
    }
  }
}

TEST(DType, RoundsToNearestEven) {
  EXPECT_EQ(F32ToF16(1.0f + 0x1p-11f), 0x3c00);      // tie: down to even
  EXPECT_EQ(F32ToF16(1.0f + 3 * 0x1p-11f), 0x3c02);  // tie: up to even
  EXPECT_EQ(F32ToF16(65519.0f), 0x7bff);             // largest that stays finite
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);             // halfway goes to infinity
  EXPECT_EQ(F32ToF16(0x1p-25f), 0x0000);             // tie with zero
  EXPECT_EQ(F32ToF16(-0x1.8p-24f), 0x8002);          // subnormal tie to even
  EXPECT_EQ(F32ToBf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(F32ToBf16(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_EQ(F32ToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace kvgauge
