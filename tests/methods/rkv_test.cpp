// SPDX-License-Identifier: Apache-2.0
// R-KV against plain loops in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fake_view.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

void Softmax(std::vector<double>& x) {
  const double most = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& value : x) sum += value = std::exp(value - most);
  for (double& value : x) value /= sum;
}

double Dot(const float* a, const float* b, int64_t dim) {
  double sum = 0;
  for (int64_t c = 0; c < dim; ++c) sum += double{a[c]} * b[c];
  return sum;
}

std::vector<double> Redundancy(const FakeView& view, int64_t head, double threshold) {
  const int64_t n = view.width(), dim = view.shape().key_dim;
  const std::vector<float>& keys = view.keys[static_cast<size_t>(head)];
  std::vector<double> sums(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    std::vector<double> row(static_cast<size_t>(n));
    int64_t last = 0;
    for (int64_t j = 0; j < n; ++j) {
      const float *a = &keys[i * dim], *b = &keys[j * dim];
      row[j] = i == j ? 0 : Dot(a, b, dim) / std::sqrt(Dot(a, a, dim) * Dot(b, b, dim));
      if (row[j] > threshold) last = j;
    }
    row[last] = 0;
    for (int64_t j = 0; j < n; ++j) sums[j] += row[j] / static_cast<double>(n);
  }
  Softmax(sums);
  return sums;
}

std::vector<double> Attention(const FakeView& view, int64_t head, int64_t window, int64_t kernel) {
  const int64_t n = view.width(), dim = view.shape().key_dim, before = n - window;
  const int64_t heads = view.shape().query_heads, group = view.shape().group();
  std::vector<double> mean(static_cast<size_t>(before)), pooled;
  for (int64_t i = before; i < n; ++i) {
    std::vector<double> row;
    for (int64_t j = 0; j < before; ++j) {
      double most = -1e30;
      for (int64_t q = head * group; q < (head + 1) * group; ++q) {
        most = std::max(most,
                        Dot(&view.queries[(i * heads + q) * dim], &view.keys[head][j * dim], dim) /
                            std::sqrt(static_cast<double>(dim)));
      }
      row.push_back(most);
    }
    Softmax(row);
    for (int64_t j = 0; j < before; ++j) mean[j] += row[j] / static_cast<double>(window);
  }
  for (int64_t j = 0; j < before; ++j) {
    const int64_t low = std::max<int64_t>(0, j - kernel / 2);
    const int64_t high = std::min(before, j + kernel / 2 + 1);
    pooled.push_back(*std::max_element(mean.begin() + low, mean.begin() + high));
  }
  return pooled;
}

// More entries than are compared at once, and so few that no block is full.
TEST(RkvTest, AttentionLessRedundancy) {
  for (const int64_t n : {300, 40}) {
    FakeView view(SmallShape(1, 2, 2, 6), n);
    view.Randomize(12);
    for (const double mix : {0.07, 0.5}) {
      const auto scorer = MakeStage<Scorer>(
          StageKind::kScore, "rkv", StrCat(R"({"kernel": 5, "threshold": 0.6, "mix": )", mix, "}"));
      EXPECT_EQ(scorer->needs(), (Needs{.window = 8, .step_window = 8, .products = true}));
      const std::vector<float> got = ScoreWith(*scorer, view);
      for (const int64_t h : {0, 1}) {
        const std::vector<double> repeats = Redundancy(view, h, 0.6);
        const std::vector<double> looks = Attention(view, h, 8, 5);
        for (int64_t j = 0; j < n - 8; ++j) {
          EXPECT_NEAR(got[h * n + j], mix * looks[j] - (1 - mix) * repeats[j], 2e-7)
              << h << " " << j;
        }
        for (int64_t j = n - 8; j < n; ++j) EXPECT_GE(got[h * n + j], 1e29f);
      }
    }
  }
}

// The later entry of two that say the same counts as less redundant; an entry like no other most.
TEST(RkvTest, WhatIsSaidOnceStays) {
  FakeView view(SmallShape(1, 1, 1, 4), 14);
  view.keys[0].assign(14 * 4, 0.0f);
  for (int64_t j = 0; j < 14; ++j) view.keys[0][j * 4] = 1;
  view.keys[0][3 * 4] = 0;
  view.keys[0][3 * 4 + 1] = 2;
  view.queries.assign(14 * 4, 0.0f);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "rkv", R"({"mix": 0})");
  const std::vector<float> scores = ScoreWith(*scorer, view);
  for (const int64_t j : {0, 1, 2, 4, 5}) EXPECT_GT(scores[3], scores[j]);
  EXPECT_THAT(MakeStage<Scorer>(StageKind::kScore, "rkv", R"({"kernel": 4})")
                  ->Check(view.shape())
                  .error()
                  .message,
              HasSubstr("such as 5"));
}

}  // namespace
}  // namespace kvgauge
