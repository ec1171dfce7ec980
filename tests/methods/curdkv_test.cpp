// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fake_view.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

// Two whole runs of 8 and one of 3, which is a neighbourhood of its own.
TEST(CurDkvTest, SharesOfNeighbourhoods) {
  constexpr int64_t kTokens = 19, kDim = 6;
  FakeView view(SmallShape(1, 2, 1, kDim), kTokens);
  view.Randomize(2);
  view.SetLength(1, 16);
  for (const std::string leverage : {"product", "mean", "keys", "values"}) {
    for (const int64_t local : {8, 0}) {
      const auto scorer = ScorerOf("curdkv", StrCat(R"({"sinks": 2, "local": )", local,
                                                    R"(, "leverage": ")", leverage, "\"}"));
      const std::vector<float> got = ScoreWith(*scorer, view);
      for (int64_t h = 0; h < 2; ++h) {
        const int64_t n = view.lengths()[h];
        const auto shares = [&](const std::vector<float>& rows) {
          std::vector<double> out;
          for (int64_t j = 0; j < n; ++j) {
            double all = local == 0 ? 1 : 0;
            for (int64_t i = j / 8 * 8; local > 0 && i < std::min(n, j / 8 * 8 + 8); ++i) {
              all += Sum(rows, i, kDim, Square);
            }
            out.push_back(Sum(rows, j, kDim, Square) / all);
          }
          return out;
        };
        const std::vector<double> keys = shares(view.keys[h]), values = shares(view.values[h]);
        std::vector<double> want;
        double sum = 0;
        for (int64_t j = 0; j < n; ++j) {
          want.push_back(leverage == "keys"     ? keys[j]
                         : leverage == "values" ? values[j]
                         : leverage == "mean"   ? (keys[j] + values[j]) / 2
                                                : keys[j] * values[j]);
          sum += want.back();
        }
        for (int64_t j = 0; j < n; ++j) {
          EXPECT_NEAR(got[h * kTokens + j], j < 2 ? 1 : want[j] / sum, 1e-6) << leverage << local;
        }
      }
    }
  }
  // Keys of zeros have no share of anything.
  std::fill(view.keys[0].begin(), view.keys[0].end(), 0.0f);
  for (const float score : ScoreWith(*ScorerOf("curdkv"), view)) EXPECT_TRUE(std::isfinite(score));
}

}  // namespace
}  // namespace kvgauge
