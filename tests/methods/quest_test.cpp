// SPDX-License-Identifier: Apache-2.0
// Quest against plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "chosen_entries.h"
#include "fake_view.h"

namespace kvgauge {
namespace {

constexpr int64_t kPage = 16, kReadDim = 8;

std::unique_ptr<Reader> Quest(const std::string& params) {
  return MakeStage<Reader>(StageKind::kRead, "quest", params);
}

// The largest product of q with a key inside the bounds of each page.
std::vector<double> PageScores(const FakeView& view, int64_t kv_head, int64_t length,
                               const float* q) {
  std::vector<double> scores;
  for (int64_t begin = 0; begin < length; begin += kPage) {
    const int64_t end = std::min(length, begin + kPage);
    double bound = 0, best = -1e30;
    for (int64_t c = 0; c < kReadDim; ++c) {
      double low = 1e30, high = -1e30;
      for (int64_t i = begin; i < end; ++i) {
        low = std::min<double>(low, view.keys[kv_head][i * kReadDim + c]);
        high = std::max<double>(high, view.keys[kv_head][i * kReadDim + c]);
      }
      bound += std::max(q[c] * low, q[c] * high);
    }
    for (int64_t i = begin; i < end; ++i) {
      double dot = 0;
      for (int64_t c = 0; c < kReadDim; ++c)
        dot += double{q[c]} * view.keys[kv_head][i * kReadDim + c];
      best = std::max(best, dot);
    }
    EXPECT_GE(bound, best - 1e-4);
    scores.push_back(bound);
  }
  return scores;
}

std::vector<bool> Best(const std::vector<double>& scores, int64_t count) {
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  std::vector<bool> chosen(scores.size());
  for (int64_t i = 0; i < count; ++i) chosen[order[i]] = true;
  return chosen;
}

class QuestTest : public ::testing::Test {
 protected:
  QuestTest() : view_(SmallShape(4, 2, 3, kReadDim), 203, 2) {
    for (int64_t h = 0; h < 2; ++h) view_.keys[h] = RandomValues(203 * kReadDim, 40 + h);
    view_.SetLength(1, 150);
    q_ = RandomValues(6 * kReadDim, 50);
  }

  void ExpectPages(const Reads& reads, int64_t count, bool by_kv_head, bool last_page = false) {
    for (int64_t h = 0; h < 6; ++h) {
      const int64_t kv_head = h / 3, length = view_.lengths()[kv_head];
      std::vector<double> scores = PageScores(view_, kv_head, length, q_.data() + h * kReadDim);
      for (int64_t other = kv_head * 3; by_kv_head && other < kv_head * 3 + 3; ++other) {
        const std::vector<double> its =
            PageScores(view_, kv_head, length, q_.data() + other * kReadDim);
        for (size_t p = 0; p < scores.size(); ++p) scores[p] = std::max(scores[p], its[p]);
      }
      if (last_page) scores.back() = 1e30;
      const std::vector<bool> want = Best(scores, count);
      for (int64_t e = 0; e < 203; ++e) {
        ASSERT_EQ(reads.Has(h, e), e < length && want[e / kPage]) << "head " << h << " entry " << e;
      }
    }
  }

  FakeView view_;
  std::vector<float> q_;
};

TEST_F(QuestTest, ReadsTheBestPagesOfEachHead) {
  for (const bool kv : {false, true}) {
    for (const bool last : {false, true}) {
      const auto reader = Quest(StrCat(R"({"tokens": 80, "heads": ")", kv ? "kv" : "query",
                                       R"(", "last_page": )", last ? "true" : "false", "}"));
      const auto state = reader->Begin(view_);
      const Reads reads = SelectWith(*reader, view_, *state, q_);
      EXPECT_TRUE(reads.chosen);
      ExpectPages(reads, 5, kv, last);
      // 13 and 10 pages, two bounds of 8 numbers each.
      EXPECT_EQ(state->bytes(), 23 * 2 * kReadDim * 4);
    }
  }
}

TEST_F(QuestTest, GrowsWithTheCache) {
  const auto reader = Quest(R"({"tokens": 64})");
  const auto state = [&] {
    // Begins with 30 and 100 entries, then gets the rest in steps.
    view_.SetLength(0, 30);
    view_.SetLength(1, 100);
    return reader->Begin(view_);
  }();
  std::vector<int64_t> first = {30, 100};
  for (const auto& [a, b] :
       std::vector<std::pair<int64_t, int64_t>>{{31, 101}, {64, 101}, {203, 150}}) {
    view_.SetLength(0, a);
    view_.SetLength(1, b);
    reader->Append(view_, first, *state);
    first = {a, b};
  }
  const Reads grown = SelectWith(*reader, view_, *state, q_);
  ExpectPages(grown, 4, false);
  EXPECT_EQ(grown.words, SelectWith(*reader, view_, *reader->Begin(view_), q_).words);
}

TEST_F(QuestTest, ReadsEverythingWhereThereIsLittle) {
  const auto reader = Quest(R"({"tokens": 208})");
  EXPECT_FALSE(SelectWith(*reader, view_, *reader->Begin(view_), q_).chosen);
  // At least three pages, whatever is asked for.
  const auto least = Quest(R"({"tokens": 1})");
  ExpectPages(SelectWith(*least, view_, *least->Begin(view_), q_), 3, false);
  // The second head holds fewer pages than are read: all of them.
  view_.SetLength(1, 40);
  ExpectPages(SelectWith(*least, view_, *least->Begin(view_), q_), 3, false);
}

// The reference's evaluation reads floor(n / 16) of ceil(n / 16) pages of what is within the
// budget.
TEST_F(QuestTest, MayLeaveOutAPageBelowTheBudgetAsTheReferenceDoes) {
  const auto reader = Quest(R"({"tokens": 1024, "below": "floor"})");
  view_.SetLength(1, 203);
  const Reads reads = SelectWith(*reader, view_, *reader->Begin(view_), q_);
  EXPECT_TRUE(reads.chosen);
  ExpectPages(reads, 203 / kPage, false);  // 12 of 13
  view_.SetLength(0, 192);
  view_.SetLength(1, 192);
  EXPECT_FALSE(SelectWith(*reader, view_, *reader->Begin(view_), q_).chosen);
}

TEST_F(QuestTest, FirstLayersAreDense) {
  FakeView low(SmallShape(4, 2, 3, kReadDim), 203, 1);
  const auto reader = Quest(R"({"tokens": 16})");
  const auto state = reader->Begin(low);
  EXPECT_FALSE(SelectWith(*reader, low, *state, q_).chosen);
  EXPECT_EQ(state->bytes(), 0);
  reader->Append(low, std::vector<int64_t>{100, 100}, *state);
  EXPECT_EQ(state->bytes(), 0);
}

}  // namespace
}  // namespace kvgauge
