// SPDX-License-Identifier: Apache-2.0
// SparQ against plain loops in double: what it reads, and what it makes of the result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "chosen_entries.h"
#include "fake_view.h"

namespace kvgauge {
namespace {

constexpr int64_t kSparqDim = 8, kSparqTokens = 90, kSparqGroup = 2, kSparqHeads = 4;

class SparqTest : public ::testing::Test {
 protected:
  // Numbers of about the same size, so that no entry has all of the attention.
  SparqTest()
      : view_(SmallShape(1, 2, kSparqGroup, kSparqDim), kSparqTokens),
        q_(Waves(kSparqHeads * kSparqDim, 0)) {
    for (int64_t h = 0; h < 2; ++h) {
      view_.keys[h] = Waves(kSparqTokens * kSparqDim, h + 1);
      view_.values[h] = RandomValues(kSparqTokens * kSparqDim, 70 + h);
    }
  }

  static std::vector<float> Waves(int64_t count, int64_t seed) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(static_cast<float>(std::sin(static_cast<double>((i + 1) * (i + 7 * seed)))));
    }
    return values;
  }

  // The `rank` numbers with the largest sum of magnitudes over the group of a query head.
  std::vector<int64_t> LargestOf(int64_t query_head, int64_t rank) const {
    const int64_t first = query_head / kSparqGroup * kSparqGroup;
    std::vector<double> sums(kSparqDim);
    for (int64_t c = 0; c < kSparqDim; ++c) {
      for (int64_t g = first; g < first + kSparqGroup; ++g)
        sums[c] += std::abs(q_[g * kSparqDim + c]);
    }
    std::vector<int64_t> order(kSparqDim);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return sums[a] > sums[b]; });
    order.resize(static_cast<size_t>(rank));
    return order;
  }

  std::vector<double> Products(int64_t query_head, int64_t rank) const {
    const float* q = q_.data() + query_head * kSparqDim;
    double whole = 0, held = 0;
    for (int64_t c = 0; c < kSparqDim; ++c) whole += std::abs(q[c]);
    const std::vector<int64_t> largest = LargestOf(query_head, rank);
    for (const int64_t c : largest) held += std::abs(q[c]);
    std::vector<double> products;
    for (int64_t e = 0; e < view_.lengths()[query_head / kSparqGroup]; ++e) {
      double dot = 0;
      for (const int64_t c : largest) {
        dot += double{q[c]} * view_.keys[query_head / kSparqGroup][e * kSparqDim + c];
      }
      products.push_back(dot / std::sqrt(kSparqDim * held / whole));
    }
    return products;
  }

  // A KV head reads the newest `last`, and the best of the others by the sum over its group.
  std::vector<int64_t> Chosen(int64_t kv_head, int64_t rank, int64_t read, int64_t last) const {
    const int64_t length = view_.lengths()[kv_head];
    std::vector<double> votes(static_cast<size_t>(length));
    for (int64_t g = 0; g < kSparqGroup; ++g) {
      const std::vector<double> products = Products(kv_head * kSparqGroup + g, rank);
      for (size_t e = 0; e < votes.size(); ++e) votes[e] += products[e];
    }
    for (int64_t e = length - last; e < length; ++e) votes[e] = 1e9;
    std::vector<int64_t> order(votes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return votes[a] > votes[b]; });
    order.resize(static_cast<size_t>(std::min(read, length)));
    std::sort(order.begin(), order.end());
    return order;
  }

  double ShareOf(int64_t query_head, int64_t rank, const std::vector<int64_t>& chosen) const {
    const std::vector<double> products = Products(query_head, rank);
    double sum = 0, read = 0;
    for (const double product : products) sum += std::exp(product);
    for (const int64_t e : chosen) read += std::exp(products[e]);
    return read / sum;
  }

  FakeView view_;
  std::vector<float> q_;
};

TEST_F(SparqTest, ReadsByTheLargestNumbersAndFillsWithTheMean) {
  for (const int64_t rank : {3, 8}) {
    const auto reader = MakeStage<Reader>(
        StageKind::kRead, "sparq", StrCat(R"({"tokens": 20, "local": 4, "rank": )", rank, "}"));
    const auto state = reader->Begin(view_);
    EXPECT_EQ(state->bytes(), 2 * kSparqDim * 4);
    const Reads reads = SelectWith(*reader, view_, *state, q_);
    ASSERT_TRUE(reads.chosen);
    const std::vector<float> before = RandomValues(kSparqHeads * kSparqDim, 5);
    std::vector<float> out = before;
    reader->Correct(view_, *state, View(out, {kSparqHeads, kSparqDim}));
    for (int64_t h = 0; h < kSparqHeads; ++h) {
      const std::vector<int64_t> chosen = Chosen(h / kSparqGroup, rank, 21, 5);
      EXPECT_EQ(reads.Of(h), chosen) << h;
      const double share = ShareOf(h, rank, chosen);
      EXPECT_GT(share, 0.02);
      EXPECT_LT(share, 0.98);
      for (int64_t c = 0; c < kSparqDim; ++c) {
        double mean = 0;
        for (int64_t e = 0; e < kSparqTokens; ++e) {
          mean += double{view_.values[h / kSparqGroup][e * kSparqDim + c]} / kSparqTokens;
        }
        EXPECT_NEAR(out[h * kSparqDim + c], share * before[h * kSparqDim + c] + (1 - share) * mean,
                    1e-5);
      }
    }
  }
}

// Values that come in steps count in the mean as those of the prompt do; a head that reads all it
// holds is left as it is, bit for bit.
TEST_F(SparqTest, GrowsWithTheCache) {
  const auto reader =
      MakeStage<Reader>(StageKind::kRead, "sparq", R"({"tokens": 20, "rank": 4, "local": 0})");
  const auto correct = [&](Reader::State& state) {
    EXPECT_TRUE(SelectWith(*reader, view_, state, q_).chosen);
    std::vector<float> out = RandomValues(kSparqHeads * kSparqDim, 5);
    reader->Correct(view_, state, View(out, {kSparqHeads, kSparqDim}));
    return out;
  };
  view_.SetLength(0, 15);
  view_.SetLength(1, 60);
  const auto grown = reader->Begin(view_);
  view_.SetLength(0, 21);
  view_.SetLength(1, 61);
  reader->Append(view_, std::vector<int64_t>{15, 60}, *grown);
  view_.SetLength(1, kSparqTokens);
  // A step that is begun again shows its entries again.
  for (int i = 0; i < 2; ++i) reader->Append(view_, std::vector<int64_t>{21, 61}, *grown);
  const std::vector<float> got = correct(*grown), want = correct(*reader->Begin(view_));
  EXPECT_TRUE(AllWithin(got, want, 1e-5));
  const std::vector<float> before = RandomValues(kSparqHeads * kSparqDim, 5);
  const auto head = [](const std::vector<float>& all, int64_t h) {
    return std::vector<float>(all.begin() + h * kSparqGroup * kSparqDim,
                              all.begin() + (h + 1) * kSparqGroup * kSparqDim);
  };
  EXPECT_EQ(head(got, 0), head(before, 0));
  EXPECT_NE(head(got, 1), head(before, 1));
}

TEST_F(SparqTest, ReadsEverythingWhereThereIsLittle) {
  const auto reader = MakeStage<Reader>(StageKind::kRead, "sparq", R"({"tokens": 89})");
  EXPECT_FALSE(SelectWith(*reader, view_, *reader->Begin(view_), q_).chosen);
}

}  // namespace
}  // namespace kvgauge
