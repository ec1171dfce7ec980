// SPDX-License-Identifier: Apache-2.0
// Scorers that look at values, ranges or counts, against plain loops in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fake_view.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

std::unique_ptr<Scorer> ScorerOf(const std::string& id, const std::string& params = "{}") {
  return MakeStage<Scorer>(StageKind::kScore, id, params);
}

double Sum(const std::vector<float>& rows, int64_t row, int64_t dim, double (*of)(double)) {
  double sum = 0;
  for (int64_t c = 0; c < dim; ++c) sum += of(double{rows[row * dim + c]});
  return sum;
}
double Absolute(double x) { return std::abs(x); }
double Square(double x) { return x * x; }

TEST(VatpTest, SumsTimesAbsoluteValuesAndGoesOn) {
  FakeView view(SmallShape(1, 2, 2, 8), 21);
  view.Randomize(8);
  const auto scorer = ScorerOf("vatp");
  EXPECT_TRUE(scorer->ages());
  EXPECT_EQ(scorer->needs(), (Needs{.column_sums = true, .step_attention = true}));
  const std::vector<float> scores = ScoreWith(*scorer, view);
  view.step = RandomValues(4 * 21, 4);
  std::vector<float> later = scores;
  scorer->Age(view, View(later, {2, 21}));
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t j = 0; j < 21; ++j) {
      double attention = 0;
      for (int64_t i = j; i < 21; ++i) attention += view.At(2 * h, i, j) + view.At(2 * h + 1, i, j);
      const double size = Sum(view.values[h], j, 8, Absolute);
      EXPECT_NEAR(scores[h * 21 + j], attention * size, 1e-4);
      attention += view.step[2 * h * 21 + j] + view.step[(2 * h + 1) * 21 + j];
      EXPECT_NEAR(later[h * 21 + j], attention * size, 1e-4);
    }
  }
}

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

TEST(ScissorhandsTest, CountsRowsThatGiveLessThanAnEqualShare) {
  FakeView view(SmallShape(1, 2, 2, 8), 23);
  view.Randomize(6);
  const auto scorer = ScorerOf("scissorhands", R"({"window": 7})");
  EXPECT_TRUE(scorer->ages());
  EXPECT_EQ(scorer->needs(), (Needs{.window = 7, .step_attention = true}));
  const std::vector<float> scores = ScoreWith(*scorer, view);
  std::vector<float> want(46);
  for (int64_t q = 0; q < 4; ++q) {
    for (int64_t i = 16; i < 23; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        if (view.At(q, i, j) < 1.0f / static_cast<float>(i + 1)) want[q / 2 * 23 + j] -= 1;
      }
    }
  }
  EXPECT_EQ(scores, want);
  EXPECT_LT(*std::min_element(want.begin(), want.end()), -1);
  // A step counts on; entries beyond a head's own are left alone.
  view.SetLength(1, 20);
  view.step = RandomValues(4 * 23, 3);
  for (float& p : view.step) p = std::abs(p) / 10;
  std::vector<float> later = scores;
  scorer->Age(view, View(later, {2, 23}));
  for (int64_t q = 0; q < 4; ++q) {
    const int64_t n = q < 2 ? 23 : 20;
    for (int64_t j = 0; j < n; ++j) {
      if (view.step[q * 23 + j] < 1.0f / static_cast<float>(n)) want[q / 2 * 23 + j] -= 1;
    }
  }
  EXPECT_EQ(later, want);
}

TEST(FinchTest, RowsWeighedByWhatTheyCouldLookAt) {
  FakeView view(SmallShape(1, 2, 2, 8), 17);
  view.Randomize(9);
  const auto scorer = ScorerOf("finch", R"({"window": 5})");
  EXPECT_EQ(scorer->needs(), Needs{.window = 5});
  const std::vector<float> scores = ScoreWith(*scorer, view);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t j = 0; j < 12; ++j) {
      double want = 0;
      for (int64_t i = 12; i < 17; ++i) {
        want += static_cast<double>(i) * (view.At(2 * h, i, j) + view.At(2 * h + 1, i, j)) / 10;
      }
      EXPECT_NEAR(scores[h * 17 + j], want, 1e-5);
    }
    for (int64_t j = 12; j < 17; ++j) EXPECT_GT(scores[h * 17 + j], 1e20f);
  }
  FakeView few(SmallShape(), 3);
  for (const float score : ScoreWith(*scorer, few)) EXPECT_GT(score, 1e20f);
}

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
