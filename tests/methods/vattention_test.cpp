// SPDX-License-Identifier: Apache-2.0
// What is drawn, and with which weight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "chosen_entries.h"
#include "fake_view.h"
#include "methods/biasing_reader.h"

namespace kvgauge {
namespace {

constexpr int64_t kSampledDim = 6, kSampledTokens = 150, kSampledSinks = 3, kSampledLocal = 7;
constexpr int64_t kSampledHeads = 4;

struct Sampled {
  Reads reads;
  std::vector<float> bias;  // [query_heads, width]

  double Weight(int64_t head, int64_t entry) const {
    return reads.Has(head, entry) ? std::exp(double{bias[head * kSampledTokens + entry]}) : 0.0;
  }
};

FakeView SampledView(uint64_t seed) {
  FakeView view(SmallShape(3, 2, 2, kSampledDim), kSampledTokens, 1, seed);
  view.Randomize(3);
  return view;
}

Sampled Sample(const std::string& params, FakeView& view) {
  const auto reader = MakeStage<Reader>(StageKind::kRead, "vattention", params);
  const auto& biasing = dynamic_cast<const BiasingReader&>(*reader);
  const auto state = reader->Begin(view);
  EXPECT_EQ(state->bytes(), 0);
  const std::vector<float> q = RandomValues(kSampledHeads * kSampledDim, 8);
  Sampled sampled;
  sampled.reads.per_head = (kSampledTokens + 63) / 64;
  sampled.reads.words.resize(static_cast<size_t>(kSampledHeads * sampled.reads.per_head));
  sampled.bias.resize(static_cast<size_t>(kSampledHeads * kSampledTokens));
  sampled.reads.chosen = biasing.Choose(
      view, *state, View(q, {kSampledHeads, kSampledDim}),
      Tensor(sampled.reads.words.data(), DType::kI64, {kSampledHeads, sampled.reads.per_head}),
      View(sampled.bias, {kSampledHeads, kSampledTokens}));
  EXPECT_EQ(SelectWith(*reader, view, *state, q).words, sampled.reads.words);
  return sampled;
}

// Over many seeds the weights of every entry have the mean 1, so that sums are right on average.
TEST(VAttentionTest, WeightsAreOneOnAverage) {
  constexpr int kSeeds = 300;
  std::vector<double> sums(static_cast<size_t>(kSampledHeads * kSampledTokens));
  std::map<int64_t, int> sizes;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    FakeView view = SampledView(seed);
    const Sampled one = Sample(
        R"({"sinks": 3, "local": 7, "share": 0.1, "base": 0.2, "epsilon": 1, "delta": 0.4})", view);
    ASSERT_TRUE(one.reads.chosen);
    for (int64_t head = 0; head < kSampledHeads; ++head) {
      for (int64_t e = 0; e < kSampledTokens; ++e) {
        const bool sure = e < kSampledSinks || e >= kSampledTokens - kSampledLocal;
        const double weight = one.Weight(head, e);
        if (sure) {
          ASSERT_EQ(weight, 1.0) << head << " " << e;
        }
        sums[head * kSampledTokens + e] += weight;
      }
      ++sizes[std::ssize(one.reads.Of(head))];
    }
  }
  // 28 of 140, each with a weight of 5: the variance of one is 4.
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_NEAR(sums[i] / kSeeds, 1.0, 4.5 * 2 / std::sqrt(kSeeds)) << i;
  }
  EXPECT_GT(sizes.size(), 2U) << "always the same number was read";
}

// The entries that an exact search finds have the weight 1, drawn or not.
TEST(VAttentionTest, TheLargestAreReadAsTheyAre) {
  FakeView view = SampledView(5);
  const std::vector<float> q = RandomValues(kSampledHeads * kSampledDim, 8);
  const Sampled one =
      Sample(R"({"sinks": 3, "local": 7, "share": 0.1, "base": 0.2, "epsilon": 1})", view);
  for (int64_t head = 0; head < kSampledHeads; ++head) {
    std::vector<std::pair<double, int64_t>> order;
    for (int64_t e = kSampledSinks; e < kSampledTokens - kSampledLocal; ++e) {
      double dot = 0;
      for (int64_t c = 0; c < kSampledDim; ++c) {
        dot += double{q[head * kSampledDim + c]} * view.keys[head / 2][e * kSampledDim + c];
      }
      order.emplace_back(-dot, e);
    }
    std::sort(order.begin(), order.end());
    int64_t weighted = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const double weight = one.Weight(head, order[i].second);
      if (i < 15) {
        EXPECT_EQ(weight, 1.0) << head << " " << i;
      } else if (weight > 0) {
        EXPECT_GT(weight, 1.0);
        ++weighted;
      }
    }
    EXPECT_GT(weighted, 10);
  }
}

// A bound that nothing but all entries keeps reads all, none of them with another weight.
TEST(VAttentionTest, ATightBoundReadsEverything) {
  FakeView view = SampledView(5);
  const Sampled all =
      Sample(R"({"sinks": 3, "local": 7, "epsilon": 0.0001, "delta": 0.0001})", view);
  ASSERT_TRUE(all.reads.chosen);
  for (int64_t head = 0; head < kSampledHeads; ++head) {
    for (int64_t e = 0; e < kSampledTokens; ++e) EXPECT_EQ(all.Weight(head, e), 1.0) << e;
  }
  // Wider bounds read less.
  const Sampled some = Sample(R"({"sinks": 3, "local": 7, "epsilon": 0.5, "base": 0.02})", view);
  const Sampled few = Sample(R"({"sinks": 3, "local": 7, "epsilon": 1, "base": 0.02})", view);
  EXPECT_LT(std::ssize(some.reads.Of(0)), kSampledTokens);
  EXPECT_LE(std::ssize(few.reads.Of(0)), std::ssize(some.reads.Of(0)));
}

// Draws follow from seed, step, layer and head, and from nothing else.
TEST(VAttentionTest, DrawsAreOfTheSeed) {
  const std::string params = R"({"sinks": 3, "local": 7, "epsilon": 1})";
  FakeView view = SampledView(5), again = SampledView(5), other = SampledView(6);
  const Sampled one = Sample(params, view);
  EXPECT_EQ(Sample(params, again).reads.words, one.reads.words);
  EXPECT_NE(Sample(params, other).reads.words, one.reads.words);
}

TEST(VAttentionTest, ShortCachesAreReadWhole) {
  FakeView view = SampledView(5);
  EXPECT_FALSE(Sample(R"({"sinks": 100, "local": 49})", view).reads.chosen);
  EXPECT_FALSE(Sample(R"({"share": 1, "sinks": 3, "local": 7})", view).reads.chosen);
  EXPECT_FALSE(Sample("{}", view).reads.chosen) << "128 and 128 entries are at the ends";
}

}  // namespace
}  // namespace kvgauge
