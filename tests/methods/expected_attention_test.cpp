// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/strings.h"
#include "fake_view.h"
#include "methods/score_reduction.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

TEST(ExpectedAttentionTest, PlainLoops) {
  constexpr int64_t kTokens = 30, kDim = 4, kSinks = 3, kLeft = kTokens - kSinks;
  const ModelShape shape = SmallShape(1, 2, 3, kDim);
  FakeView view(shape, kTokens);
  view.Randomize(11);
  for (const bool whole : {true, false}) {
    const auto scorer = MakeStage<Scorer>(
        StageKind::kScore, "expected_attention",
        StrCat(R"({"sinks": 3, "epsilon": 0.01, "covariance": )", whole ? "true" : "false",
               R"(, "value_norm": )", whole ? "true" : "false", "}"));
    EXPECT_EQ(scorer->needs().query_moments, std::vector<int64_t>{kSinks});
    EXPECT_FALSE(scorer->any_time());
    const std::vector<float> got = ScoreWith(*scorer, view);
    std::vector<float> want(2 * kTokens);
    double highest = 0;
    const Tensor mean = view.QueryMean(kSinks), spread = view.QueryCovariance(kSinks);
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t q = 3 * h; q < 3 * h + 3; ++q) {
        std::vector<double> weight(kLeft);
        double sum = 0;
        for (int64_t j = 0; j < kLeft; ++j) {
          const float* key = &view.keys[h][(kSinks + j) * kDim];
          double first = 0, second = 0;
          for (int64_t a = 0; a < kDim; ++a) {
            first += double{mean[q].f32()[a]} * key[a];
            for (int64_t b = 0; b < kDim; ++b) {
              second += double{key[a]} * spread[q][a].f32()[b] * key[b];
            }
          }
          weight[j] = std::exp(first / 2 + (whole ? second / (2 * kDim) : 0));
          sum += weight[j];
        }
        for (int64_t j = 0; j < kLeft; ++j) {
          want[h * kTokens + kSinks + j] += static_cast<float>(weight[j] / sum / 3);
        }
      }
      for (int64_t j = kSinks; j < kTokens; ++j) {
        double squares = 0;
        for (int64_t c = 0; c < kDim; ++c) {
          squares += double{view.values[h][j * kDim + c]} * view.values[h][j * kDim + c];
        }
        float& score = want[h * kTokens + j];
        if (whole) score = static_cast<float>((score + 0.01) * std::sqrt(squares));
        highest = std::max(highest, double{score});
      }
    }
    for (const int64_t h : {0, 1}) {
      for (int64_t j = 0; j < kSinks; ++j) {
        want[h * kTokens + j] = static_cast<float>(highest + 1);
      }
    }
    EXPECT_TRUE(AllWithin(got, want, 1e-5 * (highest + 1)));
  }
  // A prompt of sinks alone has no others to be above.
  FakeView few(shape, 3);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "expected_attention");
  EXPECT_THAT(ScoreWith(*scorer, few), ElementsAre(1, 1, 1, 1, 1, 1));
  ModelShape latent = shape;
  latent.latent_dim = 8;
  EXPECT_FALSE(scorer->Check(latent).ok());
}

}  // namespace
}  // namespace kvgauge
