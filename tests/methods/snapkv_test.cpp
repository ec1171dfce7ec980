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

// The last two of five rows, one query head.
TEST(SnapKv, HandWorked) {
  FakeView view(SmallShape(), 5);
  const std::vector<float> row3 = {0.5f, 0.1f, 0.2f, 0.2f, 0},
                           row4 = {0.1f, 0.5f, 0.2f, 0.1f, 0.1f};
  for (int64_t j = 0; j < 5; ++j) {
    view.At(0, 3, j) = row3[j];
    view.At(0, 4, j) = row4[j];
  }
  const auto plain =
      MakeStage<Scorer>(StageKind::kScore, "snapkv", R"({"window": 2, "kernel": 1})");
  EXPECT_EQ(plain->needs(), (Needs{.window = 2, .step_window = 2}));
  std::vector<float> scores = ScoreWith(*plain, view);
  EXPECT_TRUE(AllWithin(std::span(scores).first(3), std::vector<float>{0.3f, 0.3f, 0.2f}, 1e-7));
  EXPECT_GT(scores[3], 1e20f);
  EXPECT_EQ(scores[3], scores[4]);
  // The window's own entries do not reach into the pooling.
  const auto pooled =
      MakeStage<Scorer>(StageKind::kScore, "snapkv", R"({"window": 2, "kernel": 3})");
  scores = ScoreWith(*pooled, view);
  EXPECT_TRUE(
      AllWithin(std::span(scores).first(3), std::vector<float>{0.2f, 0.8f / 3, 0.5f / 3}, 1e-7));
}

// Kept sets against a brute force over all four settings.
TEST(SnapKv, AgreesWithPlainLoops) {
  const int64_t n = 257, window = 8;
  FakeView view(SmallShape(1, 2, 4, 16), n);
  view.Randomize(3);
  for (const bool max_pool : {false, true}) {
    for (const bool pool_first : {false, true}) {
      std::vector<std::vector<double>> rows(8, std::vector<double>(n - window));
      for (int64_t h = 0; h < 8; ++h) {
        for (int64_t j = 0; j < n - window; ++j) {
          for (int64_t i = n - window; i < n; ++i) rows[h][j] += view.At(h, i, j) / double{window};
        }
      }
      const auto pool = [&](const std::vector<double>& x) {
        std::vector<double> out(x.size());
        const auto size = static_cast<int64_t>(x.size());
        for (int64_t j = 0; j < size; ++j) {
          double sum = 0, top = 0;
          for (int64_t k = std::max<int64_t>(0, j - 2); k <= std::min(size - 1, j + 2); ++k) {
            sum += x[k];
            top = std::max(top, x[k]);
          }
          out[j] = max_pool ? top : sum / 5;
        }
        return out;
      };
      const auto mean = [&](int64_t h, const auto& of) {
        std::vector<double> out(n - window);
        for (int64_t g = 0; g < 4; ++g) {
          const std::vector<double> row = of(rows[4 * h + g]);
          for (size_t j = 0; j < row.size(); ++j) out[j] += row[j] / 4;
        }
        return out;
      };
      const auto scorer = MakeStage<Scorer>(
          StageKind::kScore, "snapkv",
          StrCat(R"({"window": 8, "kernel": 5, "pool": ")", max_pool ? "max" : "avg",
                 R"(", "order": ")", pool_first ? "pool_first" : "group_first", "\"}"));
      const std::vector<float> got = ScoreWith(*scorer, view);
      for (int64_t h = 0; h < 2; ++h) {
        const std::vector<double> want =
            pool_first ? mean(h, pool) : pool(mean(h, [](const auto& row) { return row; }));
        for (int64_t j = 0; j < n - window; ++j) ASSERT_NEAR(got[h * n + j], want[j], 1e-6);
      }
    }
  }
}

TEST(SnapKv, PromptShorterThanItsWindow) {
  FakeView view(SmallShape(), 3);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "snapkv");
  for (const float v : ScoreWith(*scorer, view)) EXPECT_GT(v, 1e20f);
}

}  // namespace
}  // namespace kvgauge
