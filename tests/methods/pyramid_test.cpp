// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "fake_view.h"
#include "methods/split_by_weight.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

TEST(PyramidTest, ListOfTheReference) {
  const ModelShape shape = SmallShape(32, 1);
  const AllocationInput input{
      .shape = &shape, .length = 10000, .per_head = 128, .protected_entries = 8};
  std::vector<int64_t> want;
  for (int64_t l = 0; l < 32; ++l) want.push_back(234 - 7 * l + 8);
  EXPECT_EQ(OfFirstHead(*AllocatorOf("pyramid", R"({"compat": true})")->Allocate(input)), want);

  const std::vector<int64_t> exact = OfFirstHead(*AllocatorOf("pyramid")->Allocate(input));
  EXPECT_EQ(Sum(exact), 32 * 128);
  EXPECT_EQ(exact.front(), 234 + 8);
  EXPECT_EQ(exact.back(), 6 + 8);
  EXPECT_TRUE(std::is_sorted(exact.rbegin(), exact.rend()));

  const auto level = AllocatorOf("pyramid", R"({"beta": 1})");
  EXPECT_EQ(OfFirstHead(*level->Allocate(input)), std::vector<int64_t>(32, 128));
}

TEST(PyramidTest, ShortPromptsAreLevelAndBounded) {
  const ModelShape shape = SmallShape(4, 2);
  AllocationInput input{.shape = &shape, .length = 100, .per_head = 60, .protected_entries = 8};
  // Under twice the pooled part: level.
  EXPECT_EQ(OfFirstHead(*AllocatorOf("pyramid")->Allocate(input)), std::vector<int64_t>(4, 60));
  // 47 on average beside the protected. The first layer can hold no more than 92: 92 62 32 2.
  input.per_head = 55;
  const Allocation bounded = *AllocatorOf("pyramid", R"({"beta": 1000})")->Allocate(input);
  EXPECT_THAT(OfFirstHead(bounded), ElementsAre(100, 70, 40, 10));
  EXPECT_THAT(
      OfFirstHead(*AllocatorOf("pyramid", R"({"beta": 1000, "compat": true})")->Allocate(input)),
      ElementsAre(100, 70, 40, 10));
  // Unbounded 91.65 61.88 32.12 2.35, and the two largest remainders.
  EXPECT_THAT(OfFirstHead(*AllocatorOf("pyramid")->Allocate(input)), ElementsAre(100, 70, 40, 10));
  EXPECT_EQ(bounded[1][0], bounded[1][1]);
  const ModelShape one = SmallShape(1, 1);
  input.shape = &one;
  EXPECT_EQ(OfFirstHead(*AllocatorOf("pyramid")->Allocate(input)), std::vector<int64_t>{55});
  for (const char* params : {"{}", R"({"compat": true})"}) {
    input.per_head = 100;
    EXPECT_EQ(OfFirstHead(*AllocatorOf("pyramid", params)->Allocate(input)),
              std::vector<int64_t>{100});
  }
}

}  // namespace
}  // namespace kvgauge
