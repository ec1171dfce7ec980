// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fake_view.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSubsetOf;

std::vector<int32_t> Kept(const std::string& params, LayerView& view,
                          const std::vector<float>& scores, int64_t allocated) {
  const auto stage = MakeStage<Reducer>(StageKind::kReduce, "nacl", params);
  const std::vector<int64_t> counts = {allocated};
  const Tensor tensor = View(scores, {1, view.width()});
  return Ints(stage->Reduce(view, {.scores = tensor, .allocated = counts}, nullptr)[0].keep);
}

TEST(NaclTest, KeepsTheBestAndDrawsTheRest) {
  std::vector<float> scores = RandomValues(60, 2);
  scores[0] = scores[59] = kInf;
  std::vector<float> sorted = scores;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const auto best = [&](size_t count) {
    std::vector<int32_t> entries;
    for (int32_t i = 0; i < 60; ++i) {
      if (scores[i] >= sorted[count - 1]) entries.push_back(i);
    }
    return entries;
  };
  FakeView view(SmallShape(), 60);
  EXPECT_EQ(Kept(R"({"random": 0})", view, scores, 22), best(22));
  EXPECT_EQ(Kept(R"({"random": 1})", view, scores, 60).size(), 60u);
  // Half of 20 that are free.
  const std::vector<int32_t> kept = Kept(R"({"random": 0.5})", view, scores, 22);
  EXPECT_EQ(kept.size(), 22u);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  EXPECT_THAT(best(12), IsSubsetOf(kept));
  EXPECT_NE(kept, best(22));
  EXPECT_EQ(Kept(R"({"random": 0.5})", view, scores, 22), kept);
  FakeView other(SmallShape(), 60, 0, 2);
  EXPECT_NE(Kept(R"({"random": 0.5})", other, scores, 22), kept);
  // No more than what is protected.
  EXPECT_THAT(Kept(R"({"random": 1})", view, scores, 2), ElementsAre(0, 59));
}

TEST(NaclTest, DrawsBySoftmaxOfTheScores) {
  // One of three is drawn; twice their scores are the logs of 1, 2 and 4.
  const std::vector<float> scores = {0, std::log(2.0f) / 2, kInf, std::log(4.0f) / 2};
  std::vector<double> drawn(4);
  constexpr int kSeeds = 4000;
  for (int seed = 0; seed < kSeeds; ++seed) {
    FakeView view(SmallShape(), 4, 0, static_cast<uint64_t>(seed));
    for (const int32_t entry : Kept(R"({"random": 1, "scale": 2})", view, scores, 2)) {
      drawn[entry] += 1.0 / kSeeds;
    }
  }
  EXPECT_NEAR(drawn[0], 1.0 / 7, 0.03);
  EXPECT_NEAR(drawn[1], 2.0 / 7, 0.03);
  EXPECT_NEAR(drawn[2], 1, 1e-9);
  EXPECT_NEAR(drawn[3], 4.0 / 7, 0.03);
}

}  // namespace
}  // namespace kvgauge
