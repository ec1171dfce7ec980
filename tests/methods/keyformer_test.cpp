// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fake_view.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

TEST(KeyformerTest, WithoutNoiseItIsFlattenedH2o) {
  FakeView view(SmallShape(1, 2, 2, 8), 21);
  view.Randomize(3);
  view.step = RandomValues(4 * 21, 4);
  for (float& a : view.step) a = std::abs(a);
  const std::string plain = R"({"window": 21, "noise": false, "decode_tau": 1})";
  EXPECT_TRUE(AllWithin(ScoreWith("keyformer", plain, view), ScoreWith("h2o", "{}", view), 1e-5));
  const std::vector<float> scores =
      ScoreWith("keyformer", R"({"window": 5, "noise": false, "tau": 2})", view);
  std::vector<float> later = scores;
  const auto stage =
      MakeStage<Scorer>(StageKind::kScore, "keyformer", R"({"noise": false, "decode_tau": 4})");
  EXPECT_EQ(stage->needs(), (Needs{.window = 64, .step_attention = true}));
  stage->Age(view, View(later, {2, 21}));
  const auto flat = [](double a, double tau) { return std::pow(a, 1 / tau); };
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t j = 0; j < 21; ++j) {
      double want = 0, step = 0;
      for (int64_t q = 2 * h; q < 2 * h + 2; ++q) {
        for (int64_t i = 16; i < 21; ++i) {
          double sum = 0;
          for (int64_t k = 0; k <= i; ++k) sum += flat(view.At(q, i, k), 2);
          if (j <= i) want += flat(view.At(q, i, j), 2) / sum;
        }
        double sum = 0;
        for (int64_t k = 0; k < 21; ++k) sum += flat(view.step[q * 21 + k], 4);
        step += flat(view.step[q * 21 + j], 4) / sum;
      }
      EXPECT_NEAR(scores[h * 21 + j], want, 1e-5);
      EXPECT_NEAR(later[h * 21 + j], want + step, 1e-5);
    }
  }
}

// The largest of logits with Gumbel numbers is a draw by their softmax.
TEST(KeyformerTest, NoiseDrawsByAttention) {
  std::vector<double> mean(6);
  constexpr int kSeeds = 1500;
  FakeView first(SmallShape(), 6);
  first.Randomize(12);
  for (int64_t j = 0; j < 6; ++j) first.At(0, 5, j) = static_cast<float>(j + 1) / 21;
  for (int seed = 0; seed < kSeeds; ++seed) {
    FakeView view(SmallShape(), 6, 0, static_cast<uint64_t>(seed));
    view.attention = first.attention;
    const std::vector<float> scores = ScoreWith("keyformer", R"({"window": 1, "tau": 0.05})", view);
    for (size_t j = 0; j < 6; ++j) mean[j] += double{scores[j]} / kSeeds;
  }
  for (size_t j = 0; j < 6; ++j) EXPECT_NEAR(mean[j], static_cast<double>(j + 1) / 21, 0.04);
  FakeView again(SmallShape(), 6), other(SmallShape(), 6, 1);
  again.attention = other.attention = first.attention;
  const std::vector<float> scores = ScoreWith("keyformer", "{}", first);
  EXPECT_EQ(ScoreWith("keyformer", "{}", again), scores);
  EXPECT_NE(ScoreWith("keyformer", "{}", other), scores);  // of another layer
}

}  // namespace
}  // namespace kvgauge
