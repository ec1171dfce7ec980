// SPDX-License-Identifier: Apache-2.0
#include "methods/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

TEST(TensorsTest, ComplementOfWhatIsKept) {
  FakeView view(SmallShape(), 6);
  EXPECT_THAT(Ints(Complement(view, View(std::vector<int32_t>{1, 2, 5}, {3}), 6)),
              ElementsAre(0, 3, 4));
  EXPECT_THAT(Ints(Complement(view, view.Scratch(DType::kI32, {0}), 2)), ElementsAre(0, 1));
  EXPECT_EQ(Complement(view, View(std::vector<int32_t>{0, 1}, {2}), 2).Numel(), 0);
}

}  // namespace
}  // namespace kvgauge
