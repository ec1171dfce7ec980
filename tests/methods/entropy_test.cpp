// SPDX-License-Identifier: Apache-2.0
// Methods that take logarithms: budgets by entropy, and draws by Gumbel numbers. Against plain
// loops in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fake_view.h"

namespace kvgauge {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::IsSubsetOf;

std::vector<float> ScoreWith(const std::string& id, const std::string& params, LayerView& view) {
  const Tensor out = view.Scratch(DType::kF32, {view.shape().kv_heads, view.width()});
  MakeStage<Scorer>(StageKind::kScore, id, params)->Score(view, out);
  return Floats(out);
}

// Mean and unbiased variance of what the last `rows` rows give to an entry.
struct Column {
  double mean = 0, variance = 0;
};
Column ColumnOf(FakeView& view, int64_t head, int64_t entry, int64_t rows) {
  const int64_t n = view.width();
  Column column;
  for (int64_t i = n - rows; i < n; ++i) column.mean += view.At(head, i, entry);
  column.mean /= static_cast<double>(rows);
  for (int64_t i = n - rows; i < n; ++i) {
    column.variance += std::pow(view.At(head, i, entry) - column.mean, 2);
  }
  column.variance /= static_cast<double>(rows - 1);
  return column;
}

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

Allotment Allot(const std::string& id, const std::string& params, const ModelShape& shape,
                int64_t length, int64_t per_head, std::vector<LayerView*> views,
                std::vector<Tensor> scores = {}) {
  const auto stage = MakeStage<Allocator>(StageKind::kAllocate, id, params);
  Result<Allotment> allotment = stage->Allocate({.shape = &shape,
                                                 .length = length,
                                                 .per_head = per_head,
                                                 .protected_entries = 2,
                                                 .window = 5,
                                                 .scores = scores,
                                                 .views = views});
  EXPECT_TRUE(allotment.ok());
  return std::move(*allotment);
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
  const Allotment allotment = Allot("cake", params, shape, kLength, 102, views);
  int64_t sum = 0;
  for (size_t l = 0; l < 3; ++l) {
    EXPECT_NEAR(static_cast<double>(allotment[l][0]), 2 + 300 * preferences[l] / all, 1.01);
    EXPECT_EQ(allotment[l][0], allotment[l][1]);
    sum += allotment[l][0];
  }
  EXPECT_EQ(sum, 3 * 102);
  EXPECT_GT(allotment[0][0], allotment[2][0] + 5);
  // Rows that give nothing to earlier entries tell layers nothing.
  for (const auto& layer : layers) std::fill(layer->attention.begin(), layer->attention.end(), 0);
  EXPECT_THAT(Allot("cake", params, shape, kLength, 102, views), Each(ElementsAre(102, 102)));
  EXPECT_THAT(Allot("cake", params, shape, kLength, kLength, views),
              Each(ElementsAre(kLength, kLength)));
}

TEST(LavaTest, ScoresTimesTheLongestValue) {
  FakeView view(SmallShape(1, 2, 2, 8), 21);
  view.Randomize(6);
  const std::vector<float> scores = ScoreWith("lava", R"({"window": 4, "kernel": 3})", view);
  for (int64_t h = 0; h < 2; ++h) {
    double longest = 0;
    for (int64_t j = 0; j < 17; ++j) {
      double length = 0;
      for (int64_t c = 0; c < 8; ++c) length += std::abs(view.values[h][j * 8 + c]);
      longest = std::max(longest, length);
    }
    for (int64_t j = 0; j < 17; ++j) {
      double most = 0;
      for (int64_t q = 2 * h; q < 2 * h + 2; ++q) {
        for (int64_t k = std::max<int64_t>(0, j - 1); k <= std::min<int64_t>(16, j + 1); ++k) {
          most = std::max(most, ColumnOf(view, q, k, 4).mean);
        }
      }
      EXPECT_NEAR(scores[h * 21 + j], most * longest, 1e-5);
    }
  }
}

TEST(LavaTest, LayersShareByEntropyHeadsByTheBest) {
  const ModelShape shape = SmallShape(2, 2);
  constexpr int64_t kLength = 12;  // the first and the last are protected
  FakeView lower(shape, kLength, 0), upper(shape, kLength, 1);
  // Ten equal scores and nothing else: entropy ln 10. Two, one in each head: ln 2.
  std::vector<float> wide(2 * kLength), narrow(2 * kLength);
  for (int64_t h = 0; h < 2; ++h) {
    for (std::vector<float>* scores : {&wide, &narrow}) {
      (*scores)[h * kLength] = (*scores)[h * kLength + kLength - 1] = kInf;
    }
    narrow[h * kLength + 3] = 0.5f;
  }
  for (int64_t j = 1; j <= 7; ++j) wide[j] = 0.1f;
  for (int64_t j = 1; j <= 3; ++j) wide[kLength + j] = 0.1f;
  const std::vector<Tensor> scores = {View(wide, {2, kLength}), View(narrow, {2, kLength})};
  const auto allot = [&](const std::string& params, int64_t per_head) {
    return Allot("lava", params, shape, kLength, per_head, {&lower, &upper}, scores);
  };
  // Three a head and layer, by ln 10 to ln 2: 5 and 1. Of the lower layer's best ten, seven are the
  // first head's.
  EXPECT_THAT(allot(R"({"floor": 0})", 5), ElementsAre(ElementsAre(9, 5), ElementsAre(3, 3)));
  EXPECT_THAT(allot(R"({"floor": 1})", 5), ElementsAre(ElementsAre(7, 7), ElementsAre(3, 3)));
  EXPECT_THAT(allot("{}", kLength), Each(ElementsAre(kLength, kLength)));
}

std::vector<int32_t> Kept(const std::string& params, LayerView& view,
                          const std::vector<float>& scores, int64_t allotted) {
  const auto stage = MakeStage<Reducer>(StageKind::kReduce, "nacl", params);
  const std::vector<int64_t> counts = {allotted};
  const Tensor tensor = View(scores, {1, view.width()});
  return Ints(stage->Reduce(view, {.scores = tensor, .allotted = counts}, nullptr)[0].keep);
}

TEST(NaclTest, KeepsTheBestAndDrawsTheRest) {
  std::vector<float> scores = RandomValues(60, 2);
  scores[0] = scores[59] = kInf;
  std::vector<float> sorted = scores;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const auto best = [&](size_t count) {
    std::vector<int32_t> entries;
    for (int32_t i = 0; i < 60; ++i) {
      if (scores[i] >= sorted[count - 1]) entries.push_back(i);
    }
    return entries;
  };
  FakeView view(SmallShape(), 60);
  EXPECT_EQ(Kept(R"({"random": 0})", view, scores, 22), best(22));
  EXPECT_EQ(Kept(R"({"random": 1})", view, scores, 60).size(), 60u);
  // Half of 20 that are free.
  const std::vector<int32_t> kept = Kept(R"({"random": 0.5})", view, scores, 22);
  EXPECT_EQ(kept.size(), 22u);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  EXPECT_THAT(best(12), IsSubsetOf(kept));
  EXPECT_NE(kept, best(22));
  EXPECT_EQ(Kept(R"({"random": 0.5})", view, scores, 22), kept);
  FakeView other(SmallShape(), 60, 0, 2);
  EXPECT_NE(Kept(R"({"random": 0.5})", other, scores, 22), kept);
  // No more than what is protected.
  EXPECT_THAT(Kept(R"({"random": 1})", view, scores, 2), ElementsAre(0, 59));
}

TEST(NaclTest, DrawsBySoftmaxOfTheScores) {
  // One of three is drawn; twice their scores are the logs of 1, 2 and 4.
  const std::vector<float> scores = {0, std::log(2.0f) / 2, kInf, std::log(4.0f) / 2};
  std::vector<double> drawn(4);
  constexpr int kSeeds = 4000;
  for (int seed = 0; seed < kSeeds; ++seed) {
    FakeView view(SmallShape(), 4, 0, static_cast<uint64_t>(seed));
    for (const int32_t entry : Kept(R"({"random": 1, "scale": 2})", view, scores, 2)) {
      drawn[entry] += 1.0 / kSeeds;
    }
  }
  EXPECT_NEAR(drawn[0], 1.0 / 7, 0.03);
  EXPECT_NEAR(drawn[1], 2.0 / 7, 0.03);
  EXPECT_NEAR(drawn[2], 1, 1e-9);
  EXPECT_NEAR(drawn[3], 4.0 / 7, 0.03);
}

TEST(KeyformerTest, WithoutNoiseItIsFlattenedH2o) {
  FakeView view(SmallShape(1, 2, 2, 8), 21);
  view.Randomize(3);
  view.step = RandomValues(4 * 21, 4);
  for (float& a : view.step) a = std::abs(a);
  const std::string plain = R"({"window": 21, "noise": false, "decode_tau": 1})";
  EXPECT_TRUE(AllWithin(ScoreWith("keyformer", plain, view), ScoreWith("h2o", "{}", view), 1e-5));
  const std::vector<float> scores =
      ScoreWith("keyformer", R"({"window": 5, "noise": false, "tau": 2})", view);
  std::vector<float> later = scores;
  const auto stage =
      MakeStage<Scorer>(StageKind::kScore, "keyformer", R"({"noise": false, "decode_tau": 4})");
  EXPECT_EQ(stage->needs(), (Needs{.window = 64, .step_attention = true}));
  stage->Age(view, View(later, {2, 21}));
  const auto flat = [](double a, double tau) { return std::pow(a, 1 / tau); };
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t j = 0; j < 21; ++j) {
      double want = 0, step = 0;
      for (int64_t q = 2 * h; q < 2 * h + 2; ++q) {
        for (int64_t i = 16; i < 21; ++i) {
          double sum = 0;
          for (int64_t k = 0; k <= i; ++k) sum += flat(view.At(q, i, k), 2);
          if (j <= i) want += flat(view.At(q, i, j), 2) / sum;
        }
        double sum = 0;
        for (int64_t k = 0; k < 21; ++k) sum += flat(view.step[q * 21 + k], 4);
        step += flat(view.step[q * 21 + j], 4) / sum;
      }
      EXPECT_NEAR(scores[h * 21 + j], want, 1e-5);
      EXPECT_NEAR(later[h * 21 + j], want + step, 1e-5);
    }
  }
}

// The largest of logits with Gumbel numbers is a draw by their softmax.
TEST(KeyformerTest, NoiseDrawsByAttention) {
  std::vector<double> mean(6);
  constexpr int kSeeds = 1500;
  FakeView first(SmallShape(), 6);
  first.Randomize(12);
  for (int64_t j = 0; j < 6; ++j) first.At(0, 5, j) = static_cast<float>(j + 1) / 21;
  for (int seed = 0; seed < kSeeds; ++seed) {
    FakeView view(SmallShape(), 6, 0, static_cast<uint64_t>(seed));
    view.attention = first.attention;
    const std::vector<float> scores = ScoreWith("keyformer", R"({"window": 1, "tau": 0.05})", view);
    for (size_t j = 0; j < 6; ++j) mean[j] += double{scores[j]} / kSeeds;
  }
  for (size_t j = 0; j < 6; ++j) EXPECT_NEAR(mean[j], static_cast<double>(j + 1) / 21, 0.04);
  FakeView again(SmallShape(), 6), other(SmallShape(), 6, 1);
  again.attention = other.attention = first.attention;
  const std::vector<float> scores = ScoreWith("keyformer", "{}", first);
  EXPECT_EQ(ScoreWith("keyformer", "{}", again), scores);
  EXPECT_NE(ScoreWith("keyformer", "{}", other), scores);  // of another layer
}

}  // namespace
}  // namespace kvgauge
