// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fake_view.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(LavaTest, ScoresTimesTheLongestValue) {
  FakeView view(SmallShape(1, 2, 2, 8), 21);
  view.Randomize(6);
  const std::vector<float> scores = ScoreWith("lava", R"({"window": 4, "kernel": 3})", view);
  for (int64_t h = 0; h < 2; ++h) {
    double longest = 0;
    for (int64_t j = 0; j < 17; ++j) {
      double length = 0;
      for (int64_t c = 0; c < 8; ++c) length += std::abs(view.values[h][j * 8 + c]);
      longest = std::max(longest, length);
    }
    for (int64_t j = 0; j < 17; ++j) {
      double most = 0;
      for (int64_t q = 2 * h; q < 2 * h + 2; ++q) {
        for (int64_t k = std::max<int64_t>(0, j - 1); k <= std::min<int64_t>(16, j + 1); ++k) {
          most = std::max(most, ColumnOf(view, q, k, 4).mean);
        }
      }
      EXPECT_NEAR(scores[h * 21 + j], most * longest, 1e-5);
    }
  }
}

TEST(LavaTest, LayersShareByEntropyHeadsByTheBest) {
  const ModelShape shape = SmallShape(2, 2);
  constexpr int64_t kLength = 12;  // the first and the last are protected
  FakeView lower(shape, kLength, 0), upper(shape, kLength, 1);
  // Ten equal scores and nothing else: entropy ln 10. Two, one in each head: ln 2.
  std::vector<float> wide(2 * kLength), narrow(2 * kLength);
  for (int64_t h = 0; h < 2; ++h) {
    for (std::vector<float>* scores : {&wide, &narrow}) {
      (*scores)[h * kLength] = (*scores)[h * kLength + kLength - 1] = kInf;
    }
    narrow[h * kLength + 3] = 0.5f;
  }
  for (int64_t j = 1; j <= 7; ++j) wide[j] = 0.1f;
  for (int64_t j = 1; j <= 3; ++j) wide[kLength + j] = 0.1f;
  const std::vector<Tensor> scores = {View(wide, {2, kLength}), View(narrow, {2, kLength})};
  const auto allocate = [&](const std::string& params, int64_t per_head) {
    return AllocateWith("lava", params, shape, kLength, per_head, {&lower, &upper}, scores);
  };
  // Three a head and layer, by ln 10 to ln 2: 5 and 1. Seven of the lower layer's best ten are the
  // first head's.
  EXPECT_THAT(allocate(R"({"floor": 0})", 5), ElementsAre(ElementsAre(9, 5), ElementsAre(3, 3)));
  EXPECT_THAT(allocate(R"({"floor": 1})", 5), ElementsAre(ElementsAre(7, 7), ElementsAre(3, 3)));
  EXPECT_THAT(allocate("{}", kLength), Each(ElementsAre(kLength, kLength)));
}

}  // namespace
}  // namespace kvgauge
