// SPDX-License-Identifier: Apache-2.0
// Scorers against hand-worked cases and plain loops.
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

TEST(ScoreReductionTest, OrderMattersForMaxPoolingOnly) {
  FakeView view(SmallShape(1, 1, 2), 3);
  const std::vector<float> rows = {1, 0, 0, 0, 0, 3};
  const auto reduce = [&](ScoreReduction::Group group, Pooling pooling, bool pool_first) {
    std::vector<float> out(3);
    ScoreReduction reduction{
        .group = group, .kernel = 3, .pooling = pooling, .pool_first = pool_first};
    reduction.Apply(view, View(rows, {2, 3}), View(out, {1, 3}));
    return out;
  };
  using Group = ScoreReduction::Group;
  EXPECT_THAT(reduce(Group::kMean, Pooling::kMax, false), ElementsAre(0.5f, 1.5f, 1.5f));
  EXPECT_THAT(reduce(Group::kMean, Pooling::kMax, true), ElementsAre(0.5f, 2.0f, 1.5f));
  EXPECT_EQ(reduce(Group::kSum, Pooling::kAverage, false),
            reduce(Group::kSum, Pooling::kAverage, true));
  EXPECT_THAT(reduce(Group::kMax, Pooling::kMax, true), ElementsAre(1, 3, 3));
}

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
  EXPECT_EQ(plain->needs(), Needs{.window = 2});
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

TEST(TovaTest, OneRowForAllHeads) {
  FakeView view(SmallShape(1, 2, 2, 16), 33);
  view.Randomize(8);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "tova");
  const std::vector<float> scores = ScoreWith(*scorer, view);
  for (int64_t j = 0; j < 33; ++j) {
    double want = 0;
    for (int64_t h = 0; h < 4; ++h) want += view.At(h, 32, j) / 4.0;
    EXPECT_NEAR(scores[j], want, 1e-6);
    EXPECT_EQ(scores[33 + j], scores[j]);
  }
  // A decode step replaces what was there.
  std::vector<float> later = scores;
  std::fill(view.step.begin(), view.step.end(), 0.0f);
  view.step[2 * 33 + 5] = 1;
  scorer->Age(view, View(later, {2, 33}));
  for (int64_t i = 0; i < 66; ++i) EXPECT_EQ(later[i], i % 33 == 5 ? 0.25f : 0.0f);
}

TEST(KeyDiffTest, TheOneThatDiffersComesFirst) {
  FakeView view(SmallShape(1, 2, 1, 2), 4);
  view.keys[0] = {1, 0, 5, 0, -3, 0, 2, 0};  // lengths do not matter
  view.keys[1] = {0, 1, 0, 2, 1, 0, 9, 9};
  view.SetLength(1, 3);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "keydiff");
  const std::vector<float> scores = ScoreWith(*scorer, view);
  EXPECT_TRUE(AllWithin(std::span(scores).first(4), std::vector<float>{-1, -1, 1, -1}, 1e-6));
  // The anchor is (1, 2) / 3; what lies beyond a head's length has no part in it.
  const float twice = 2 / std::sqrt(5.0f), once = 1 / std::sqrt(5.0f);
  EXPECT_TRUE(
      AllWithin(std::span(scores).subspan(4, 3), std::vector<float>{-twice, -twice, -once}, 1e-6));
}

TEST(KeyNormTest, ShortKeysComeFirst) {
  FakeView view(SmallShape(1, 2, 1, 2), 4);
  view.keys[0] = {3, 4, 0, 0.5f, -6, 8, 0, 0};
  view.keys[1] = {0, 2, 1, 0, 5, 12, 9, 9};
  view.SetLength(1, 3);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "knorm");
  EXPECT_EQ(scorer->needs(), Needs{});
  EXPECT_TRUE(scorer->any_time());
  const std::vector<float> scores = ScoreWith(*scorer, view);
  EXPECT_TRUE(AllWithin(std::span(scores).first(7),
                        std::vector<float>{-5, -0.5f, -10, 0, -2, -1, -13}, 1e-5));
}

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

TEST(Recency, CountsPositionsOfRaggedHeads) {
  FakeView view(SmallShape(1, 2), 4);
  view.positions[1] = {0, 1, 9, 0};
  view.SetLength(1, 3);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "recency");
  EXPECT_THAT(ScoreWith(*scorer, view), ElementsAre(0, 1, 2, 3, 0, 1, 9, 0));
  EXPECT_TRUE(scorer->any_time());
}

TEST(Random, FollowsSeedLayerHeadAndPosition) {
  const ModelShape shape = SmallShape(2, 2);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "random");
  FakeView view(shape, 50, 0, 7), same(shape, 50, 0, 7), seed(shape, 50, 0, 8),
      layer(shape, 50, 1, 7);
  const std::vector<float> scores = ScoreWith(*scorer, view);
  EXPECT_EQ(ScoreWith(*scorer, same), scores);
  EXPECT_NE(ScoreWith(*scorer, seed), scores);
  EXPECT_NE(ScoreWith(*scorer, layer), scores);
  EXPECT_EQ(std::set<float>(scores.begin(), scores.end()).size(), 100u);
  // An entry keeps its number when others before it are gone.
  FakeView later(shape, 50, 0, 7);
  later.positions[0][0] = 30;
  EXPECT_EQ(ScoreWith(*scorer, later)[0], scores[30]);
}

}  // namespace
}  // namespace kvgauge
