// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fake_view.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;

TEST(CakeTest, ScoresMeanAndVarianceOfTheWindow) {
  FakeView view(SmallShape(1, 2, 2, 8), 21);
  view.Randomize(4);
  const std::vector<float> scores =
      ScoreWith("cake", R"({"window": 4, "gamma": 30, "kernel": 1})", view);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t j = 0; j < 17; ++j) {
      double want = 0;
      for (int64_t q = 2 * h; q < 2 * h + 2; ++q) {
        const Column column = ColumnOf(view, q, j, 4);
        want += (column.mean + 30 * column.variance) / 2;
      }
      EXPECT_NEAR(scores[h * 21 + j], want, 1e-6);
    }
    EXPECT_THAT(std::vector<float>(&scores[h * 21 + 17], &scores[h * 21 + 17] + 4),
                Each(Ge(1e29f)));
  }
}

TEST(CakeTest, LayersShareByEntropyAndVariance) {
  const ModelShape shape = SmallShape(3, 2, 2, 8);
  constexpr int64_t kLength = 400, kRows = 5, kBefore = kLength - kRows;
  std::vector<std::unique_ptr<FakeView>> layers;
  std::vector<LayerView*> views;
  std::vector<double> preferences;
  double all = 0;
  for (int64_t l = 0; l < 3; ++l) {
    layers.push_back(std::make_unique<FakeView>(shape, kLength, l));
    FakeView& view = *layers.back();
    view.Randomize(40 + static_cast<uint64_t>(l));
    // Layers of unlike sharpness.
    for (float& a : view.attention) a = std::pow(a, 1.0f + 0.1f * static_cast<float>(l));
    views.push_back(&view);
    double entropy = 0, variance = 0;
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t j = 0; j < kBefore; ++j) {
        for (int64_t i = kBefore; i < kLength; ++i) {
          entropy -= view.At(h, i, j) * std::log(view.At(h, i, j) + 1e-10);
        }
        variance += ColumnOf(view, h, j, kRows).variance;
      }
    }
    preferences.push_back(std::pow(entropy, 1 / 2.0) * std::pow(variance, 1 / 1.5));
    all += preferences.back();
  }
  const std::string params = R"({"tau1": 2, "tau2": 1.5})";
  const Allocation allocation = AllocateWith("cake", params, shape, kLength, 102, views);
  int64_t sum = 0;
  for (size_t l = 0; l < 3; ++l) {
    EXPECT_NEAR(static_cast<double>(allocation[l][0]), 2 + 300 * preferences[l] / all, 1.01);
    EXPECT_EQ(allocation[l][0], allocation[l][1]);
    sum += allocation[l][0];
  }
  EXPECT_EQ(sum, 3 * 102);
  EXPECT_GT(allocation[0][0], allocation[2][0] + 5);
  // Rows that give nothing to earlier entries tell layers nothing.
  for (const auto& layer : layers) std::fill(layer->attention.begin(), layer->attention.end(), 0);
  EXPECT_THAT(AllocateWith("cake", params, shape, kLength, 102, views),
              Each(ElementsAre(102, 102)));
  EXPECT_THAT(AllocateWith("cake", params, shape, kLength, kLength, views),
              Each(ElementsAre(kLength, kLength)));
}

// While decoding, the newest row's attention on what is before the window, pooled over five
// entries and averaged over the query heads.
TEST(CakeTest, GoesOnWithTheNewestRow) {
  FakeView view(SmallShape(1, 2, 2, 8), 21);
  view.Randomize(4);
  view.is_decoding = true;
  view.step = RandomValues(4 * 21, 9);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "cake", R"({"window": 4})");
  EXPECT_TRUE(scorer->any_time());
  EXPECT_EQ(scorer->protects(), 4);
  EXPECT_TRUE(scorer->needs().step_attention);
  const std::vector<float> scores = ScoreWith("cake", R"({"window": 4})", view);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t j = 0; j < 17; ++j) {
      double want = 0;
      for (int64_t q = 2 * h; q < 2 * h + 2; ++q) {
        for (int64_t i = std::max<int64_t>(0, j - 2); i < std::min<int64_t>(17, j + 3); ++i) {
          want += double{view.step[q * 21 + i]} / 10;
        }
      }
      EXPECT_NEAR(scores[h * 21 + j], want, 1e-6) << j;
    }
    EXPECT_THAT(std::vector<float>(&scores[h * 21 + 17], &scores[h * 21 + 17] + 4),
                Each(Ge(1e29f)));
  }
}

// As the authors' adjust_budgets has it: of 100 the first of four layers would get 60 and holds 43;
// the 17 go to the three others alike, where shares in proportion would give them 8, 5 and 4.
TEST(CakeTest, WhatALayerCannotHoldGoesToTheOthersAlike) {
  const ModelShape shape = SmallShape(4, 1, 1, 8);
  constexpr int64_t kLength = 45, kRows = 5;
  // Two entries get all, in turns: the variance says how much, the entropy is the same.
  std::vector<std::unique_ptr<FakeView>> layers;
  std::vector<LayerView*> views;
  const double wanted[] = {60, 18, 12, 10};
  for (int64_t l = 0; l < 4; ++l) {
    layers.push_back(std::make_unique<FakeView>(shape, kLength, l));
    // Half to each of two entries but for a small tilt, by turns: variance is its square.
    const auto tilt = static_cast<float>(0.01 * std::sqrt(wanted[l]));
    for (int64_t i = kLength - kRows; i < kLength; ++i) {
      const float turn = i % 2 == 0 ? tilt : -tilt;
      layers.back()->At(0, i, 0) = 0.5f + turn;
      layers.back()->At(0, i, 1) = 0.5f - turn;
    }
    views.push_back(layers.back().get());
  }
  // Entropy counts for next to nothing, variance as it is. Of 4 * 25 beside what is protected.
  const Allocation allocation =
      AllocateWith("cake", R"({"tau1": 100, "tau2": 1})", shape, kLength, 25 + 2, views);
  int64_t sum = 0;
  for (const auto& layer : allocation) sum += layer[0] - 2;
  EXPECT_EQ(sum, 100);
  EXPECT_EQ(allocation[0][0], 2 + 43);
  // 17 that the first cannot hold: 6, 6 and 5 on top of 18, 12 and 10, within rounding.
  EXPECT_NEAR(static_cast<double>(allocation[1][0] - 2), 18 + 6, 1);
  EXPECT_NEAR(static_cast<double>(allocation[2][0] - 2), 12 + 6, 1);
  EXPECT_NEAR(static_cast<double>(allocation[3][0] - 2), 10 + 5, 1);
}

}  // namespace
}  // namespace kvgauge
