// SPDX-License-Identifier: Apache-2.0
#include "core/rng.h"

#include <gtest/gtest.h>

namespace kvgauge {
namespace {

TEST(Rng, MatchesPublishedPhiloxVectors) {
  // Random123 known answers for philox4x32-10.
  const std::array<uint32_t, 4> zeros = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  EXPECT_EQ(Rng(0, 0).At(0), zeros);
  const std::array<uint32_t, 4> ones = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  EXPECT_EQ(Rng(~0ull, ~0ull).At(~0ull), ones);
}

TEST(Rng, StreamsDifferAndRepeat) {
  Rng a(1, 2), b(1, 2), c(1, 3);
  const uint64_t first = a.NextU64();
  EXPECT_EQ(first, b.NextU64());
  EXPECT_NE(first, c.NextU64());
  double sum = 0, squares = 0;
  for (int i = 0; i < 20000; ++i) {
    const double g = a.NextGaussian();
    sum += g;
    squares += g * g;
    EXPECT_LT(a.NextBelow(7), 7u);
  }
  EXPECT_NEAR(sum / 20000, 0, 0.03);
  EXPECT_NEAR(squares / 20000, 1, 0.05);
}

}  // namespace
}  // namespace kvgauge
