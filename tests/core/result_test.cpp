// SPDX-License-Identifier: Apache-2.0
#include "core/result.h"

#include <gtest/gtest.h>

namespace kvgauge {
namespace {

TEST(Result, CarriesValueOrError) {
  const Result<int> good = 3;
  const Result<int> bad = BadInput("x.json: key 'a': 5, expected 1 to 4");
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(*good, 3);
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().Wrap("loading").message, "loading: x.json: key 'a': 5, expected 1 to 4");
}

}  // namespace
}  // namespace kvgauge
