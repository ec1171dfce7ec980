// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fake_view.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

// The closed form is the move itself: the output without the entry, its weight shared by the
// others.
TEST(CaoteTest, IsTheMoveOfTheOutput) {
  FakeView view(SmallShape(1, 2, 3, 8), 19);
  view.Randomize(5);
  for (const bool sums : {false, true}) {
    const auto scorer =
        ScorerOf("caote", sums ? R"({"weights": "sums"})" : R"({"window": 4, "group": "max"})");
    EXPECT_EQ(scorer->needs(), sums ? Needs{.column_sums = true} : Needs{.window = 4});
    const std::vector<float> got = ScoreWith(*scorer, view);
    for (int64_t h = 0; h < 2; ++h) {
      std::vector<double> mean(19), most(19);
      for (int64_t q = 3 * h; q < 3 * h + 3; ++q) {
        std::vector<double> weight(19);
        const int64_t from = sums ? 0 : 15;
        for (int64_t i = from; i < 19; ++i) {
          for (int64_t j = 0; j <= i; ++j) {
            weight[j] += view.At(q, i, j) / static_cast<double>(19 - from);
          }
        }
        const auto output = [&](int64_t without) {
          std::vector<double> out(8);
          for (int64_t j = 0; j < 19; ++j) {
            const double share = without < 0    ? weight[j]
                                 : j == without ? 0
                                                : weight[j] / (1 - weight[without]);
            for (int64_t c = 0; c < 8; ++c) out[c] += share * view.values[h][j * 8 + c];
          }
          return out;
        };
        const std::vector<double> whole = output(-1);
        for (int64_t j = 0; j < 19; ++j) {
          const std::vector<double> part = output(j);
          double squares = 0;
          for (int64_t c = 0; c < 8; ++c) squares += Square(whole[c] - part[c]);
          mean[j] += std::sqrt(squares) / 3;
          most[j] = std::max(most[j], std::sqrt(squares));
        }
      }
      for (int64_t j = 0; j < 19; ++j) {
        EXPECT_NEAR(got[h * 19 + j], sums ? mean[j] : most[j], 1e-5);
      }
    }
  }
}

TEST(CaoteTest, AnEntryWithAllTheWeightHasAFiniteScore) {
  FakeView view(SmallShape(), 2);
  view.At(0, 1, 0) = 1;
  view.values[0] = {1, 0, 0, 0, 0, 1, 0, 0};
  for (const float score : ScoreWith(*ScorerOf("caote", R"({"window": 1})"), view)) {
    EXPECT_TRUE(std::isfinite(score));
  }
}

}  // namespace
}  // namespace kvgauge
