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

TEST(H2oTest, SumsColumnsAndGoesOn) {
  FakeView view(SmallShape(1, 2, 2, 16), 33);
  view.Randomize(8);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "h2o");
  EXPECT_TRUE(scorer->ages());
  EXPECT_EQ(scorer->needs(), (Needs{.column_sums = true, .step_attention = true}));
  std::vector<float> scores = ScoreWith(*scorer, view);
  std::vector<double> want(66);
  for (int64_t h = 0; h < 4; ++h) {
    for (int64_t i = 0; i < 33; ++i) {
      for (int64_t j = 0; j <= i; ++j) want[h / 2 * 33 + j] += view.At(h, i, j);
    }
  }
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(scores[i], want[i], 1e-4);
  // Two heads of two share 33 rows of 1 each.
  EXPECT_NEAR(std::accumulate(scores.begin(), scores.end(), 0.0), 4 * 33, 1e-3);

  view.step = RandomValues(4 * 33, 4);
  std::vector<float> later = scores;
  scorer->Age(view, View(later, {2, 33}));
  for (int64_t i = 0; i < 66; ++i) {
    const int64_t head = i / 33 * 2, j = i % 33;
    EXPECT_NEAR(later[i], scores[i] + view.step[head * 33 + j] + view.step[(head + 1) * 33 + j],
                1e-4);
  }
}

TEST(H2oTest, RunningMeansAreMeansOverTheRowsThatSawAnEntry) {
  FakeView view(SmallShape(1, 2, 2, 16), 33);
  view.Randomize(8);
  const std::string mean = R"({"rows": "mean", "group": "mean"})";
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "h2o", mean);
  // The prompt without its last row, which then comes as a step: as if all were the prompt.
  const std::vector<float> want = ScoreWith(*scorer, view);
  std::vector<float> scores(66);
  for (int64_t h = 0; h < 4; ++h) {
    for (int64_t j = 0; j < 33; ++j) {
      view.step[h * 33 + j] = view.At(h, 32, j);
      for (int64_t i = j; i < 32; ++i) {
        scores[h / 2 * 33 + j] += view.At(h, i, j) / 2 / static_cast<float>(32 - j);
      }
    }
  }
  scorer->Age(view, View(scores, {2, 33}));
  EXPECT_TRUE(AllWithin(scores, want, 1e-6));
}

}  // namespace
}  // namespace kvgauge
