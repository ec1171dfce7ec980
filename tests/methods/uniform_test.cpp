// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "fake_view.h"
#include "methods/split_by_weight.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

TEST(UniformTest, EveryHeadTheSame) {
  const ModelShape shape = SmallShape(3, 2);
  AllocationInput input{.shape = &shape, .length = 10, .per_head = 4};
  EXPECT_EQ(*AllocatorOf("uniform")->Allocate(input), Allocation(3, {4, 4}));
  input.per_head = 40;
  EXPECT_EQ(*AllocatorOf("uniform")->Allocate(input), Allocation(3, {10, 10}));
}

}  // namespace
}  // namespace kvgauge
