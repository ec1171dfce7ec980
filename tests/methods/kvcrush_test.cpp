// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

class KvCrushTest : public ::testing::Test {
 protected:
  std::vector<int32_t> Keep(const std::string& params, std::vector<float> scores, int64_t kept) {
    const auto n = std::ssize(scores);
    FakeView view(SmallShape(1, 1, 1, 2), n);
    const auto reducer = MakeStage<Reducer>(StageKind::kReduce, "kvcrush", params);
    const std::vector<int64_t> allocated = {kept};
    const auto plans = reducer->Reduce(
        view, {.scores = View(scores, {1, n}), .allocated = allocated, .step = 0}, nullptr);
    const Tensor& keep = plans[0].keep;
    return {keep.i32(), keep.i32() + keep.Numel()};
  }

  const float inf_ = 1e30f;
};

// Entry 0 is sure. Blocks of two behind it score 15, 3, 11, 5, 4.9, 2; the upper half are 8, 7, 6,
// 5, 4, 3.
TEST_F(KvCrushTest, HandWorked) {
  const std::vector<float> scores = {inf_, 8, 7, 3, 0, 5, 6, 4, 1, 2.5f, 2.4f, 0.5f, 1.5f};
  // Blocks 0 and 2 are best. Bits of 1, 3, 4 and 5 are 10, 10, 00, 00: from zeros the order is 4,
  // 5, 1, 3.
  EXPECT_THAT(Keep(R"({"block": 2, "share": 0.34, "anchor": "zeros"})", scores, 7),
              ElementsAre(0, 1, 2, 5, 6, 9, 10));
  // From ones it is 1, 3, 4, 5.
  EXPECT_THAT(Keep(R"({"block": 2, "share": 0.34, "anchor": "ones"})", scores, 7),
              ElementsAre(0, 1, 2, 3, 4, 5, 6));
  // Two stand for others: every second of that order.
  EXPECT_THAT(Keep(R"({"block": 2, "share": 0.5, "anchor": "zeros"})", scores, 9),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 9, 10));
}

TEST_F(KvCrushTest, TheBudgetIsSpentToTheLastEntry) {
  const std::vector<float> scores = {inf_, 8, 7, 3, 0, 5, 6, 4, 1, 2.5f, 2.4f, 0.5f, 1.5f};
  const std::string zeros = R"({"block": 2, "share": 0.34, "anchor": "zeros"})";
  // The next best block is 3, of which the first entry stays.
  EXPECT_THAT(Keep(zeros, scores, 8), ElementsAre(0, 1, 2, 5, 6, 7, 9, 10));
  // Less than a block is left: single entries.
  EXPECT_THAT(Keep(zeros, scores, 2), ElementsAre(0, 1));
  EXPECT_EQ(Keep(zeros, scores, 13).size(), 13u);
  for (int64_t kept = 1; kept <= 13; ++kept) {
    for (const char* anchor : {"random", "mean", "alternating"}) {
      const std::string params = StrCat(R"({"block": 5, "share": 0.5, "anchor": ")", anchor, "\"}");
      EXPECT_EQ(std::ssize(Keep(params, scores, kept)), kept) << params;
    }
  }
}

}  // namespace
}  // namespace kvgauge
