// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fake_view.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

TEST(LagKvTest, SpreadWithinTheRangesOfTheNextRun) {
  constexpr int64_t kTokens = 41, kDim = 6, kSinks = 3, kLag = 9;  // four runs and two left
  FakeView view(SmallShape(1, 2, 1, kDim), kTokens);
  view.Randomize(4);
  const auto scorer = ScorerOf("lagkv", R"({"sinks": 3, "lag": 9})");
  EXPECT_EQ(scorer->needs(), Needs{});
  const std::vector<float> got = ScoreWith(*scorer, view);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t p = 0; p < 3; ++p) {
      const int64_t begin = kSinks + p * kLag;
      std::vector<double> want(kLag);
      for (const std::vector<float>* rows : {&view.keys[h], &view.values[h]}) {
        std::vector<double> weight(kLag);
        double all = 0;
        for (int64_t j = 0; j < kLag; ++j) {
          std::vector<double> scaled;
          double mean = 0, squares = 0;
          for (int64_t c = 0; c < kDim; ++c) {
            double low = 1e30, high = -1e30;
            for (int64_t i = begin + kLag; i < begin + 2 * kLag; ++i) {
              low = std::min<double>(low, (*rows)[i * kDim + c]);
              high = std::max<double>(high, (*rows)[i * kDim + c]);
            }
            scaled.push_back(((*rows)[(begin + j) * kDim + c] - low) / (high - low));
            mean += scaled.back() / kDim;
          }
          for (const double x : scaled) squares += Square(x - mean);
          weight[j] = std::exp(std::sqrt(squares / (kDim - 1)));
          all += weight[j];
        }
        for (int64_t j = 0; j < kLag; ++j) want[j] += weight[j] / all / 2;
      }
      for (int64_t j = 0; j < kLag; ++j) {
        EXPECT_NEAR(got[h * kTokens + begin + j], want[j], 2e-6);
      }
    }
    for (int64_t j = 0; j < kSinks; ++j) EXPECT_EQ(got[h * kTokens + j], 1);
    for (int64_t j = kSinks + 3 * kLag; j < kTokens; ++j) {
      EXPECT_NEAR(got[h * kTokens + j], 1 + static_cast<double>(j) / kTokens, 1e-6);
    }
  }
  // A channel that is shifted and stretched everywhere changes nothing.
  for (int64_t j = 0; j < kTokens; ++j) {
    float& x = view.keys[0][j * kDim + 2];
    x = 4 * x - 1;
  }
  EXPECT_TRUE(AllWithin(ScoreWith(*scorer, view), got, 1e-5));
}

TEST(LagKvTest, WithoutTwoRunsTheNewestComeFirst) {
  FakeView view(SmallShape(), 4);
  EXPECT_THAT(ScoreWith(*ScorerOf("lagkv", R"({"sinks": 1, "lag": 2})"), view),
              ElementsAre(1, 1.25f, 1.5f, 1.75f));
  // Channels that never change leave scores finite.
  FakeView still(SmallShape(1, 1, 1, 4), 9);
  for (const float score : ScoreWith(*ScorerOf("lagkv", R"({"sinks": 1, "lag": 2})"), still)) {
    EXPECT_TRUE(std::isfinite(score));
  }
}

}  // namespace
}  // namespace kvgauge
