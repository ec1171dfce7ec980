// SPDX-License-Identifier: Apache-2.0
// Readers that answer for a part of the entries themselves.
#include "methods/joining_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "chosen_entries.h"
#include "fake_view.h"
#include "methods/entry_blocks.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The softmax of each row of logits times the values, [n, dim].
std::vector<float> SoftmaxSum(const std::vector<float>& logits, const std::vector<float>& values,
                              int64_t n, int64_t dim) {
  std::vector<float> out;
  for (size_t row = 0; row < logits.size() / static_cast<size_t>(n); ++row) {
    std::vector<double> sum(static_cast<size_t>(dim));
    double total = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double weight = std::exp(double{logits[row * n + i]});
      total += weight;
      for (int64_t c = 0; c < dim; ++c) sum[c] += weight * double{values[i * dim + c]};
    }
    for (const double x : sum) out.push_back(static_cast<float>(x / total));
  }
  return out;
}

TEST(JoinSoftmaxTest, TwoPartsAreOneSoftmax) {
  constexpr int64_t kRows = 3, kN = 20, kFirst = 7, kDim = 5;
  FakeView view(SmallShape(), 1);
  const std::vector<float> logits = RandomValues(kRows * kN, 1),
                           values = RandomValues(kN * kDim, 2);
  std::vector<float> first, rest, sums;
  for (int64_t row = 0; row < kRows; ++row) {
    double total = 0;
    for (int64_t i = 0; i < kN; ++i) {
      const float x = logits[row * kN + i];
      (i < kFirst ? first : rest).push_back(x);
      if (i < kFirst) total += std::exp(double{x});
    }
    sums.push_back(static_cast<float>(std::log(total)));
  }
  std::vector<float> result = SoftmaxSum(first, values, kFirst, kDim);
  const std::vector<float> alone = result;
  std::vector<float> none(kRows * 2, -INFINITY);
  JoinSoftmax(view, View(sums, {kRows}), View(none, {kRows, 2}),
              View(values, {kN, kDim}).Slice(0, 2), View(result, {kRows, kDim}));
  EXPECT_TRUE(AllWithin(result, alone, 1e-6)) << "nothing was added";
  JoinSoftmax(view, View(sums, {kRows}), View(rest, {kRows, kN - kFirst}),
              View(values, {kN, kDim}).Slice(kFirst, kN), View(result, {kRows, kDim}));
  EXPECT_TRUE(AllWithin(result, SoftmaxSum(logits, values, kN, kDim), 1e-5));
}

TEST(JoinSoftmaxTest, MarksByHand) {
  FakeView view(SmallShape(), 70);
  std::vector<int64_t> words(2 * 2);
  const Tensor rows(words.data(), DType::kI64, {2, 2});
  const std::vector<float> marks = {1, 0, 1, 0, 0, 0};
  MarkWhere(view, View(marks, {2, 3}), 62, rows);
  MarkEnds(view, 1, 69, 70, rows);
  const auto bit = [](int64_t e) { return static_cast<int64_t>(uint64_t{1} << e); };
  EXPECT_THAT(words, ElementsAre(bit(0) | bit(62), bit(0) | bit(5), bit(0), bit(5)));
  // One row for all; ends may be everything.
  MarkWhere(view, View(marks, {2, 3}).Slice(0, 1), 0, rows);
  EXPECT_THAT(words, ElementsAre(0b101, 0, 0b101, 0));
  MarkEnds(view, 100, 100, 3, Columns(rows, 0, 1));
  EXPECT_EQ(words[2], 0b111);
}

// An entry is drawn as often as the chance by which its weight is divided.
TEST(MagicPigTest, DrawsAsOftenAsWeightsSay) {
  constexpr int64_t kDim = 6, kTokens = 44, kDraws = 400;
  constexpr int kBits = 2, kTables = 5;
  const auto reader =
      MakeStage<Reader>(StageKind::kRead, "magicpig",
                        R"({"bits": 2, "tables": 5, "sinks": 1, "local": 3, "dense_every": 0})");
  const auto& joining = dynamic_cast<const JoiningReader&>(*reader);
  const std::vector<float> q = RandomValues(kDim, 77);
  std::vector<int64_t> drawn(kTokens);
  std::vector<double> chances(kTokens);
  for (uint64_t seed = 1; seed <= kDraws; ++seed) {
    FakeView view(SmallShape(2, 1, 1, kDim), kTokens, 1, seed);
    view.Randomize(3);
    const auto state = reader->Begin(view);
    const Reads sure = SelectWith(*reader, view, *state, q);
    ASSERT_TRUE(sure.chosen);
    EXPECT_THAT(sure.Of(0), ElementsAre(0, kTokens - 3, kTokens - 2, kTokens - 1));
    int64_t word = 0;
    joining.MarkJoined(view, *state, Tensor(&word, DType::kI64, {1, 1}));
    for (int64_t e = 0; e < kTokens; ++e) drawn[e] += word >> e & 1;
    if (seed > 1) continue;
    std::vector<double> mean(kDim);
    for (int64_t e = 1; e < kTokens - 3; ++e) {
      for (int64_t c = 0; c < kDim; ++c) mean[c] += view.keys[0][e * kDim + c] / (kTokens - 4.0);
    }
    for (int64_t e = 1; e < kTokens - 3; ++e) {
      double product = 0, key = 0, query = 0;
      for (int64_t c = 0; c < kDim; ++c) {
        const double k = double{view.keys[0][e * kDim + c]} - mean[c];
        product += k * double{q[c]};
        key += k * k;
        query += double{q[c]} * double{q[c]};
      }
      const double sign = 1 - std::acos(product / std::sqrt(key * query)) / std::numbers::pi;
      const double table = std::pow(sign, kBits);
      chances[e] =
          1 - std::pow(1 - table, kTables) - kTables * table * std::pow(1 - table, kTables - 1);
    }
  }
  EXPECT_EQ(drawn[0] + drawn[kTokens - 1], 0);
  for (int64_t e = 1; e < kTokens - 3; ++e) {
    const double u = chances[e], spread = std::sqrt(u * (1 - u) * kDraws);
    EXPECT_NEAR(static_cast<double>(drawn[e]), u * kDraws, 4.5 * spread) << e;
  }
}

// Where every cluster is read, or estimated from one entry each, attention is what it was.
TEST(RetroInferTest, OneEntryAClusterIsExact) {
  constexpr int64_t kDim = 6, kTokens = 40;
  const auto reader = MakeStage<Reader>(
      StageKind::kRead, "retroinfer",
      R"({"span": 1, "share": 0.25, "estimated": 0.75, "sinks": 2, "local": 4, "iterations": 1})");
  FakeView view(SmallShape(1, 1, 2, kDim), kTokens);
  view.Randomize(5);
  // Opposite pairs of one length, whose mean is nothing: each is nearest to itself.
  for (int64_t e = 2; e < kTokens - 4; e += 2) {
    float* key = &view.keys[0][static_cast<size_t>(e * kDim)];
    const double size = std::sqrt(std::inner_product(key, key + kDim, key, 0.0));
    for (int64_t c = 0; c < kDim; ++c) {
      key[c] /= static_cast<float>(size);
      key[kDim + c] = -key[c];
    }
  }
  const auto state = reader->Begin(view);
  const std::vector<float> q = RandomValues(2 * kDim, 8);
  const Reads reads = SelectWith(*reader, view, *state, q);
  ASSERT_TRUE(reads.chosen);
  std::vector<float> logits, some, sums, want;
  for (int64_t h = 0; h < 2; ++h) {
    std::vector<float> own_logits, own_values;
    double total = 0;
    for (int64_t e = 0; e < kTokens; ++e) {
      double dot = 0;
      for (int64_t c = 0; c < kDim; ++c)
        dot += double{q[h * kDim + c]} * view.keys[0][e * kDim + c];
      const auto x = static_cast<float>(dot * double{view.shape().attention_scale});
      logits.push_back(x);
      if (!reads.Has(h, e)) continue;
      total += std::exp(double{x});
      own_logits.push_back(x);
      for (int64_t c = 0; c < kDim; ++c) own_values.push_back(view.values[0][e * kDim + c]);
    }
    EXPECT_LT(std::ssize(own_logits), kTokens);
    const auto out = SoftmaxSum(own_logits, own_values, std::ssize(own_logits), kDim);
    some.insert(some.end(), out.begin(), out.end());
    sums.push_back(static_cast<float>(std::log(total)));
  }
  want = SoftmaxSum(logits, view.values[0], kTokens, kDim);
  EXPECT_FALSE(AllWithin(some, want, 1e-3));
  dynamic_cast<const JoiningReader&>(*reader).Join(view, *state, View(q, {2, kDim}),
                                                   View(sums, {2}), View(some, {2, kDim}));
  EXPECT_TRUE(AllWithin(some, want, 1e-5));
}

TEST(InfLlmTest, ReadsTheBlocksThatAnswer) {
  constexpr int64_t kDim = 4, kTokens = 4 + 5 * 8 + 6 + 3;
  const auto reader = MakeStage<Reader>(
      StageKind::kRead, "infllm",
      R"({"block": 8, "picks": 2, "sinks": 4, "local": 6, "representatives": 1})");
  FakeView view(SmallShape(1, 1, 2, kDim), kTokens);
  view.Randomize(5);
  // In each block the entry with most attention points along the first axis, by its number.
  for (float& x : view.keys[0]) x = 0.1f;
  for (int64_t b = 0; b < 5; ++b) {
    const int64_t entry = 4 + 8 * b + b;
    view.keys[0][entry * kDim] = static_cast<float>(b == 1 ? 9 : b);
    view.At(0, kTokens - 1, entry) = view.At(1, kTokens - 1, entry) = 50;
  }
  const auto state = reader->Begin(view);
  EXPECT_EQ(static_cast<const EntryBlocks&>(*state).count(), 5);
  const Reads reads = SelectWith(*reader, view, *state, {1, 0, 0, 0, 1, 0, 0, 0});
  ASSERT_TRUE(reads.chosen);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t e = 0; e < kTokens; ++e) {
      const int64_t block = e < 4 ? -1 : (e - 4) / 8;
      EXPECT_EQ(reads.Has(h, e), block < 0 || block == 1 || block >= 4) << h << ", " << e;
    }
  }
  // As many blocks as are read anyway.
  FakeView few(SmallShape(1, 1, 2, kDim), 4 + 2 * 8 + 6);
  const auto all = reader->Begin(few);
  EXPECT_FALSE(SelectWith(*reader, few, *all, std::vector<float>(2 * kDim)).chosen);
  const auto wrong =
      MakeStage<Reader>(StageKind::kRead, "infllm", R"({"block": 8, "representatives": 9})");
  EXPECT_THAT(wrong->Check(SmallShape()).error().message, HasSubstr("representatives 9"));
}

}  // namespace
}  // namespace kvgauge
