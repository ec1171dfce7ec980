// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "fake_weights.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr auto kKey = WeightView::Matrix::kKey;
constexpr auto kValue = WeightView::Matrix::kValue;

// [weights | bias] of one group as rows of doubles.
std::vector<std::vector<double>> Stack(const std::vector<float>& w, const std::vector<float>* bias,
                                       int64_t begin, int64_t rows, int64_t inputs) {
  std::vector<std::vector<double>> out;
  for (int64_t i = begin; i < begin + rows; ++i) {
    out.emplace_back(w.begin() + i * inputs, w.begin() + (i + 1) * inputs);
    if (bias != nullptr) out.back().push_back((*bias)[i]);
  }
  return out;
}

TEST(PaluTest, BasesAreOrthonormalAndHoldTheWeights) {
  for (const bool with_bias : {false, true}) {
    for (const int64_t hidden : {24, 6}) {  // a group of 8 rows may have more rows than inputs
      const ModelShape shape = Wide(4, hidden);
      FakeWeights weights(shape, with_bias);
      const auto stage = PrepareOf("palu", R"({"group": 2, "multiple": 1, "key_ratio": 0.5,
                                           "value_ratio": 0.25})");
      EXPECT_TRUE(stage->writes_bases());
      ASSERT_TRUE(stage->Transform(weights).ok());
      for (const auto& [place, bases] : weights.bases) {
        ASSERT_EQ(bases.size(), 2u);
        const auto matrix = place.second == KvSide::kKeys ? kKey : kValue;
        const WeightView::Matrix m = matrix;
        const std::vector<float>* before =
            with_bias ? &weights.biases.at({place.first, m}) : nullptr;
        const std::vector<float>* after =
            with_bias ? &weights.written_biases.at({place.first, m}) : nullptr;
        for (int64_t g = 0; g < 2; ++g) {
          const FakeWeights::Basis& basis = bases[g];
          EXPECT_EQ(basis.first_head, 2 * g);
          EXPECT_EQ(basis.heads, 2);
          EXPECT_EQ(basis.rank, place.second == KvSide::kKeys ? 4 : 2);
          const auto at = [&](int64_t row, int64_t r) {
            return double{basis.values[row * basis.rank + r]};
          };
          for (int64_t r = 0; r < basis.rank; ++r) {
            for (int64_t s = 0; s < basis.rank; ++s) {
              double dot = 0;
              for (int64_t row = 0; row < 8; ++row) dot += at(row, r) * at(row, s);
              EXPECT_NEAR(dot, r == s, 1e-5);
            }
          }
          // What is written is what the basis holds of what was read.
          const auto was = Stack(weights.weights.at({place.first, m}), before, 8 * g, 8, hidden);
          const auto is = Stack(weights.written.at({place.first, m}), after, 8 * g, 8, hidden);
          double norm = 0, worst = 0;
          for (size_t j = 0; j < was[0].size(); ++j) {
            for (int64_t row = 0; row < 8; ++row) {
              double projected = 0;
              for (int64_t r = 0; r < basis.rank; ++r) {
                double inner = 0;
                for (int64_t k = 0; k < 8; ++k) inner += at(k, r) * was[k][j];
                projected += at(row, r) * inner;
              }
              worst = std::max(worst, std::abs(projected - is[row][j]));
              norm = std::max(norm, std::abs(was[row][j]));
            }
          }
          EXPECT_LT(worst, 1e-5 * (norm + 1));
        }
      }
    }
  }
}

TEST(PaluTest, BestOfItsRankAndExactWhenWhole) {
  const ModelShape shape = Wide(2, 24);
  const auto loss = [&](const char* params) {
    FakeWeights weights(shape, false);
    EXPECT_TRUE(PrepareOf("palu", params)->Transform(weights).ok());
    double sum = 0;
    for (const auto& [key, got] : weights.written) {
      for (size_t i = 0; i < got.size(); ++i) {
        const double off = double{got[i]} - weights.weights.at(key)[i];
        sum += off * off;
      }
    }
    return sum;
  };
  EXPECT_LT(loss(R"({"key_ratio": 1, "value_ratio": 1, "multiple": 1})"), 1e-6);
  const double half = loss(R"({"multiple": 1})");
  // The energy that the singular values beyond the fourth hold, by the library's own reference.
  double discarded = 0;
  FakeWeights weights(shape, false);
  const auto reference = std::move(*MakeOps("reference", ThreadSettings{1}));
  for (const auto& [key, w] : weights.weights) {
    std::vector<float> u(64), s(8), vt(8 * 24);
    reference->algebra->Svd(View(w, {8, 24}), View(u, {8, 8}), View(s, {8}), View(vt, {8, 24}));
    for (int i = 4; i < 8; ++i) discarded += double{s[i]} * s[i];
  }
  EXPECT_NEAR(half, discarded, 1e-3 * discarded);
  EXPECT_GT(loss(R"({"multiple": 1, "key_ratio": 0.25})"), half);
}

TEST(PaluTest, ModelsItCannotServe) {
  ModelShape shape = Wide(6, 12);
  EXPECT_THAT(PrepareOf("palu")->Check(shape).error().message, HasSubstr("group 4 must divide"));
  EXPECT_TRUE(PrepareOf("palu", R"({"group": 0})")->Check(shape).ok());
  EXPECT_TRUE(PrepareOf("palu")->Check(Wide(2, 12)).ok());  // all of them are fewer
  shape.key_norm = true;
  EXPECT_THAT(PrepareOf("palu")->Check(shape).error().message, HasSubstr("normed"));
  shape.latent_dim = 8;
  EXPECT_FALSE(PrepareOf("palu")->Check(shape).ok());
  EXPECT_FALSE(PrepareOf("mean_pool_heads")->Check(shape).ok());
}

}  // namespace
}  // namespace kvgauge
