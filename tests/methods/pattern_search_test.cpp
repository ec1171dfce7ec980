// SPDX-License-Identifier: Apache-2.0
// MInference's search for the pattern of each head, against plain loops over whole attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "fake_view.h"
#include "methods/calibration.h"

namespace kvgauge {
namespace {

constexpr int64_t kSearched = 600, kSearchFrom = 300, kSearchHeads = 4, kSearchDim = 4;
// 0.05 of the reference's numbers.
constexpr std::array<std::array<int64_t, 2>, 5> kTried = {
    {{5, 40}, {1, 40}, {5, 37}, {25, 35}, {175, 5}}};

// Heads that look at what is near, at what is 100 tokens away, at a few entries, at anything.
FakeView HeadsOfFourKinds() {
  FakeView view(SmallShape(1, kSearchHeads, 1, kSearchDim), kSearched);
  view.Randomize(3);
  const auto turn = [](std::vector<float>& rows, int64_t row, int64_t heads, int64_t head,
                       double position, double length) {
    const double angle = position * std::acos(-1.0) / (2 * kSearched);
    float* at = rows.data() + (row * heads + head) * kSearchDim;
    std::fill_n(at, kSearchDim, 0.0f);
    at[0] = static_cast<float>(length * std::cos(angle));
    at[1] = static_cast<float>(length * std::sin(angle));
  };
  for (int64_t i = 0; i < kSearched; ++i) {
    for (int64_t h = 0; h < 2; ++h) {
      const auto where = static_cast<double>(i);
      turn(view.queries, i, kSearchHeads, h, where, 28);
      turn(view.keys[static_cast<size_t>(h)], i, 1, 0, where + 100.0 * static_cast<double>(h), 28);
    }
    float* query = view.queries.data() + (i * kSearchHeads + 2) * kSearchDim;
    std::fill_n(query, kSearchDim, 0.0f);
    query[0] = 1;
    view.keys[2][static_cast<size_t>(i * kSearchDim)] = i % 13 == 7 ? 12.0f : 0.0f;
  }
  return view;
}

std::vector<int64_t> BestOfSums(std::vector<double> sums, int64_t count, int64_t always_from,
                                int64_t always_to) {
  for (int64_t i = always_from; i < always_to; ++i) sums[static_cast<size_t>(i)] = 1e30;
  std::vector<int64_t> order(sums.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return sums[static_cast<size_t>(a)] > sums[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(count));
  return order;
}

// What the pattern leaves a head of its attention; 5 is blocks of 32, an eighth of them a row.
double LeftBy(FakeView& view, const std::vector<std::vector<double>>& given, int64_t head,
              size_t tried) {
  std::set<int64_t> columns, distances;
  std::vector<std::vector<bool>> marked(kSearched, std::vector<bool>(kSearched));
  if (tried >= 1 && tried <= 4) {
    std::vector<double> of_columns(kSearched), of_diagonals(kSearched);
    for (int64_t i = kSearched - 64; i < kSearched; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        of_columns[j] += given[i][j];
        of_diagonals[kSearched - 1 - (i - j)] += given[i][j];
      }
    }
    const int64_t first = kTried[tried][0], second = kTried[tried][1];
    for (int64_t c : BestOfSums(of_columns, first, 0, std::min<int64_t>(first, 30))) {
      columns.insert(c);
    }
    for (int64_t d :
         BestOfSums(of_diagonals, second, kSearched - std::min<int64_t>(second, 30), kSearched)) {
      distances.insert(kSearched - 1 - d);
    }
  }
  const auto sum_of_block = [&](const auto& number, int64_t block) {
    double sum = 0;
    for (int64_t i = 32 * block; i < std::min<int64_t>(kSearched, 32 * block + 32); ++i) {
      sum += number(i);
    }
    return sum / 32;
  };
  for (int64_t row = 0; tried == 5 && row < 19; ++row) {
    std::vector<double> alike(static_cast<size_t>(row + 1));
    for (int64_t block = 0; block <= row; ++block) {
      for (int64_t c = 0; c < kSearchDim; ++c) {
        alike[static_cast<size_t>(block)] +=
            sum_of_block(
                [&](int64_t i) { return view.queries[(i * kSearchHeads + head) * kSearchDim + c]; },
                row) *
            sum_of_block([&](int64_t i) { return view.keys[head][i * kSearchDim + c]; }, block);
      }
    }
    const int64_t count = std::min<int64_t>(row + 1, 2);  // 19 / 8 blocks
    for (const int64_t best : BestOfSums(alike, count, 0, 0)) {
      for (int64_t i = 32 * row; i < std::min<int64_t>(kSearched, 32 * row + 32); ++i) {
        for (int64_t j = 32 * best; j < 32 * best + 32 && j < kSearched; ++j) marked[i][j] = true;
      }
    }
  }
  double left = 0;
  for (int64_t i = kSearchFrom; i < kSearched; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      const bool seen = tried == 0   ? j < kTried[0][0] || i - j <= kTried[0][1]
                        : tried == 5 ? marked[i][j]
                                     : columns.contains(j) || distances.contains(i - j);
      left += seen ? given[i][j] : 0;
    }
  }
  return left;
}

TEST(PatternSearch, FindsWhatLeavesAHeadMost) {
  FakeView view = HeadsOfFourKinds();
  const StageSpec* spec = *FindStage(StageKind::kAttend, "minference");
  const Params params = *Params::Parse(
      spec->params, *ParseJson(R"({"search_from": 300, "search_scale": 0.05})", "test"), "test");
  const std::vector<int64_t> lengths = {kSearched};
  const auto search = spec->calibrate(params, view.shape(), lengths);
  EXPECT_EQ(search->needs(0).window, kSearched);
  search->Observe(0, view);
  const Calibration::Tables found = search->Finish(view.ops());
  ASSERT_EQ(found.at("vertical_and_slash").values.size(), 2u * kSearchHeads);
  std::set<size_t> kinds;
  for (int64_t head = 0; head < kSearchHeads; ++head) {
    std::vector<std::vector<double>> given(kSearched, std::vector<double>(kSearched));
    for (int64_t i = 0; i < kSearched; ++i) {
      double sum = 0;
      for (int64_t j = 0; j <= i; ++j) {
        double product = 0;
        for (int64_t c = 0; c < kSearchDim; ++c) {
          product += double{view.queries[(i * kSearchHeads + head) * kSearchDim + c]} *
                     view.keys[head][j * kSearchDim + c];
        }
        sum += given[i][j] = std::exp(product * double{view.shape().attention_scale});
      }
      for (int64_t j = 0; j <= i; ++j) given[i][j] /= sum;
    }
    std::vector<double> left;
    for (size_t tried = 0; tried < 6; ++tried) left.push_back(LeftBy(view, given, head, tried));
    const auto best =
        static_cast<size_t>(std::max_element(left.begin(), left.end()) - left.begin());
    kinds.insert(best);
    const std::array<int64_t, 2> want = best == 5 ? std::array<int64_t, 2>{50, 304} : kTried[best];
    const std::vector<float>& values = found.at("vertical_and_slash").values;
    EXPECT_EQ(values[2 * head], static_cast<float>(want[0])) << head << " by " << best;
    EXPECT_EQ(values[2 * head + 1], static_cast<float>(want[1])) << head << " by " << best;
    EXPECT_EQ(found.at("stream_llm").values[2 * head], -1);
    EXPECT_EQ(found.at("block_sparse").values[2 * head + 1], -1);
  }
  EXPECT_GE(kinds.size(), 3u);
}

}  // namespace
}  // namespace kvgauge
