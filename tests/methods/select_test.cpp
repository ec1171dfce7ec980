// SPDX-License-Identifier: Apache-2.0
// Readers that choose single entries, against plain loops in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <string_view>

#include "chosen_entries.h"
#include "fake_view.h"
#include "methods/state_fields.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSelectDim = 8, kSelectTokens = 90, kSelectGroup = 2, kSelectHeads = 4;

class SelectTest : public ::testing::Test {
 protected:
  SelectTest()
      : view_(SmallShape(2, 2, kSelectGroup, kSelectDim), kSelectTokens),
        q_(RandomValues(kSelectHeads * kSelectDim, 3)) {
    for (int64_t h = 0; h < 2; ++h)
      view_.keys[h] = RandomValues(kSelectTokens * kSelectDim, 60 + h);
  }

  Reads SelectWith(const Reader& reader, Reader::State& state) {
    return kvgauge::SelectWith(reader, view_, state, q_);
  }

  // Shares of entries [begin, end) for one query head, of scores that `score(entry)` gives.
  template <class Score>
  static std::vector<double> Shares(int64_t begin, int64_t end, Score score) {
    std::vector<double> shares;
    for (int64_t e = begin; e < end; ++e) shares.push_back(score(e));
    const double most = *std::max_element(shares.begin(), shares.end());
    double sum = 0;
    for (double& share : shares) sum += share = std::exp(share - most);
    for (double& share : shares) share /= sum;
    return shares;
  }

  // The first `first` and the last `last` entries of `length`, and the `count` best between.
  static std::vector<int64_t> Want(const std::vector<double>& between, int64_t first, int64_t last,
                                   int64_t count, int64_t length) {
    std::vector<int64_t> order(between.size()), entries;
    std::iota(order.begin(), order.end(), first);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return between[a - first] > between[b - first]; });
    for (int64_t e = 0; e < first; ++e) entries.push_back(e);
    for (int64_t i = 0; i < std::min<int64_t>(count, std::ssize(order)); ++i) {
      entries.push_back(order[i]);
    }
    for (int64_t e = length - last; e < length; ++e) entries.push_back(e);
    std::sort(entries.begin(), entries.end());
    return entries;
  }

  double Product(int64_t query_head, int64_t entry) const {
    double dot = 0;
    for (int64_t c = 0; c < kSelectDim; ++c) {
      dot += double{q_[query_head * kSelectDim + c]} *
             view_.keys[query_head / kSelectGroup][entry * kSelectDim + c];
    }
    return dot;
  }

  FakeView view_;
  std::vector<float> q_;
};

TEST_F(SelectTest, TokenSelectSumsTheSharesOfAllHeads) {
  for (const bool scaled : {false, true}) {
    for (const bool ragged : {false, true}) {
      view_.SetLength(1, ragged ? 70 : kSelectTokens);
      const auto reader =
          MakeStage<Reader>(StageKind::kRead, "tokenselect",
                            StrCat(R"({"sinks": 3, "local": 7, "tokens": 12, "scaled": )",
                                   scaled ? "true" : "false", "}"));
      const auto state = reader->Begin(view_);
      EXPECT_EQ(state->bytes(), 0);
      const Reads reads = SelectWith(*reader, *state);
      EXPECT_TRUE(reads.chosen);
      for (int64_t q = 0; q < kSelectHeads; ++q) {
        const int64_t length = view_.lengths()[q / kSelectGroup];
        std::vector<double> votes(static_cast<size_t>(length - 10));
        for (int64_t voter = 0; voter < kSelectHeads; ++voter) {
          // Heads that hold other entries have no say.
          if (ragged && voter / kSelectGroup != q / kSelectGroup) continue;
          const std::vector<double> shares = Shares(3, length - 7, [&](int64_t e) {
            return Product(voter, e) / (scaled ? std::sqrt(double{kSelectDim}) : 1);
          });
          for (size_t i = 0; i < votes.size(); ++i) votes[i] += shares[i];
        }
        EXPECT_EQ(reads.Of(q), Want(votes, 3, 7, 12, length)) << q << scaled << ragged;
      }
    }
  }
}

TEST_F(SelectTest, TokenSelectReadsAllThatFits) {
  const auto reader = MakeStage<Reader>(StageKind::kRead, "tokenselect",
                                        R"({"sinks": 10, "local": 20, "tokens": 60})");
  EXPECT_FALSE(SelectWith(*reader, *reader->Begin(view_)).chosen);
}

// As many centroids as entries: codes are the keys themselves.
TEST_F(SelectTest, PqCacheWithExactCodesIsTopK) {
  const std::string params = R"({"sinks": 4, "tokens": 20, "recent_share": 0.4, "bits": 7,
                                 "iterations": 3})";
  const auto reader = MakeStage<Reader>(StageKind::kRead, "pqcache", params);
  const auto state = reader->Begin(view_);
  // 86 centroids of 8 numbers and as many pairs of codes, for two heads; blocks of 64 bytes.
  EXPECT_EQ(state->bytes(), 2 * (2 * 1408 + 86 * 2 * 4));
  const Reads reads = SelectWith(*reader, *state);
  EXPECT_TRUE(reads.chosen);
  for (int64_t q = 0; q < kSelectHeads; ++q) {
    std::vector<double> sums(kSelectTokens - 12);
    for (int64_t other = q / kSelectGroup * kSelectGroup;
         other < (q / kSelectGroup + 1) * kSelectGroup; ++other) {
      const std::vector<double> shares = Shares(4, kSelectTokens - 8, [&](int64_t e) {
        return Product(other, e) / std::sqrt(double{kSelectDim});
      });
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += shares[i];
    }
    EXPECT_EQ(reads.Of(q), Want(sums, 4, 8, 12, kSelectTokens));
  }
}

// Keys whose halves are one of four vectors each, so that four centroids are exact; entries that
// come later are coded by them.
TEST_F(SelectTest, PqCacheCodesLaterEntriesByTheSameCentroids) {
  const std::vector<float> halves = RandomValues(4 * 4, 9);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t e = 0; e < kSelectTokens; ++e) {
      for (int64_t c = 0; c < kSelectDim; ++c) {
        // Evenly spaced entries, where centroids start, take all four.
        const int64_t which = c < 4 ? e / 16 % 4 : (e / 16 + e) % 4;
        view_.keys[h][e * kSelectDim + c] = halves[which * 4 + c % 4];
      }
    }
  }
  const std::string params = R"({"sinks": 0, "tokens": 20, "recent_share": 0.25, "bits": 2})";
  const auto reader = MakeStage<Reader>(StageKind::kRead, "pqcache", params);
  view_.SetLength(0, 64);
  view_.SetLength(1, 64);
  const auto state = reader->Begin(view_);
  view_.SetLength(0, 65);
  view_.SetLength(1, 65);
  reader->Append(view_, std::vector<int64_t>{64, 64}, *state);
  view_.SetLength(0, kSelectTokens);
  view_.SetLength(1, 80);
  reader->Append(view_, std::vector<int64_t>{65, 65}, *state);
  EXPECT_EQ(state->bytes(), 2 * 2 * 64 + (90 + 80) * 2 * 4);
  const Reads reads = SelectWith(*reader, *state);
  for (int64_t q = 0; q < kSelectHeads; ++q) {
    const int64_t length = view_.lengths()[q / kSelectGroup];
    std::vector<double> sums(static_cast<size_t>(length - 5));
    for (int64_t other = q / kSelectGroup * kSelectGroup;
         other < (q / kSelectGroup + 1) * kSelectGroup; ++other) {
      const std::vector<double> shares = Shares(0, length - 5, [&](int64_t e) {
        return Product(other, e) / std::sqrt(double{kSelectDim});
      });
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += shares[i];
    }
    // Equal keys score alike: what is read scores no less than what is not.
    const std::vector<int64_t> got = reads.Of(q);
    ASSERT_EQ(got.size(), 20u);
    double least = 1, most = 0;
    for (int64_t e = 0; e < length - 5; ++e) {
      const bool read = std::find(got.begin(), got.end(), e) != got.end();
      if (read) least = std::min(least, sums[e]);
      if (!read) most = std::max(most, sums[e]);
    }
    EXPECT_GE(least, most - 1e-6);
    EXPECT_EQ(got.back(), length - 1);
  }
}

// A prompt of sinks has no key to learn codes from.
TEST_F(SelectTest, PqCacheReadsAllWherePromptsAreSinks) {
  const auto reader =
      MakeStage<Reader>(StageKind::kRead, "pqcache", R"({"sinks": 30, "tokens": 20})");
  view_.SetLength(0, 24);
  view_.SetLength(1, 30);
  const auto state = reader->Begin(view_);
  EXPECT_EQ(state->bytes(), 0);
  view_.SetLength(0, 84);
  view_.SetLength(1, kSelectTokens);
  reader->Append(view_, std::vector<int64_t>{24, 30}, *state);
  // A saved cache has no codes either, though there are entries behind the sinks by then.
  std::string bytes;
  StateFields written(&bytes);
  ASSERT_TRUE(reader->Fields(view_, *state, written).ok());
  const auto loaded = reader->Begin(view_);
  std::string_view left = bytes;
  StateFields read(&left);
  const Status status = reader->Fields(view_, *loaded, read);
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(loaded->bytes(), 0);
  for (Reader::State* const of : {state.get(), loaded.get()}) {
    const Reads reads = SelectWith(*reader, *of);
    EXPECT_TRUE(reads.chosen);
    for (int64_t q = 0; q < kSelectHeads; ++q) {
      EXPECT_EQ(std::ssize(reads.Of(q)), view_.lengths()[q / kSelectGroup]);
    }
  }
}

TEST_F(SelectTest, PqCacheReadsAllThatFitsAndNeedsWholeParts) {
  const auto reader =
      MakeStage<Reader>(StageKind::kRead, "pqcache", R"({"sinks": 30, "tokens": 60})");
  EXPECT_FALSE(SelectWith(*reader, *reader->Begin(view_)).chosen);
  const Status status =
      MakeStage<Reader>(StageKind::kRead, "pqcache", R"({"parts": 3})")->Check(view_.shape());
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("parts 3 must divide the 8 dims"));
}

}  // namespace
}  // namespace kvgauge
