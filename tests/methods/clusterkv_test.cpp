// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "chosen_entries.h"
#include "fake_view.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRunDim = 8;

// Keys of head h point along one of three axes, by the number of the entry; one sink.
class ClusterKvTest : public ::testing::Test {
 protected:
  static constexpr int64_t kTokens = 31;

  ClusterKvTest() : view_(SmallShape(4, 2, 2, kRunDim), kTokens, 2), q_(4 * kRunDim) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t e = 0; e < kTokens; ++e) {
        view_.keys[h][e * kRunDim + Axis(h, e)] = 1 + static_cast<float>(e) / 100;
      }
    }
    q_[0 * kRunDim + 0] = 2;  // by head: first axis, second but less of the third, ...
    q_[1 * kRunDim + 1] = 2;
    q_[1 * kRunDim + 2] = 1;
    q_[2 * kRunDim + 2] = 3;
    q_[3 * kRunDim + 0] = -1;
    q_[3 * kRunDim + 1] = -2;
  }

  static int64_t Axis(int64_t head, int64_t entry) { return (entry + head) % 3; }

  // The sink, and entries of the axes in that order until there are `read` of the first `prompt`.
  static std::vector<int64_t> Want(int64_t head, std::vector<int64_t> axes, int64_t read,
                                   int64_t prompt = kTokens, int64_t length = kTokens) {
    std::vector<int64_t> entries = {0};
    for (const int64_t axis : axes) {
      for (int64_t e = 1; e < prompt; ++e) {
        if (Axis(head, e) == axis && std::ssize(entries) < read) entries.push_back(e);
      }
    }
    for (int64_t e = prompt; e < length; ++e) entries.push_back(e);
    std::sort(entries.begin(), entries.end());
    return entries;
  }

  FakeView view_;
  std::vector<float> q_;
};

TEST_F(ClusterKvTest, TakesWholeClustersByTheirMeanKey) {
  for (const int64_t tokens : {5, 11, 14, 21}) {
    const auto reader =
        MakeStage<Reader>(StageKind::kRead, "clusterkv",
                          StrCat(R"({"sinks": 1, "span": 10, "tokens": )", tokens, "}"));
    const auto state = reader->Begin(view_);
    // Three means of eight numbers and thirty labels, for two heads, in blocks of 64 bytes.
    EXPECT_EQ(state->bytes(), 2 * (128 + 128));
    const Reads reads = SelectWith(*reader, view_, *state, q_);
    EXPECT_TRUE(reads.chosen);
    EXPECT_EQ(reads.Of(1), Want(0, {1, 2, 0}, tokens));
    EXPECT_EQ(reads.Of(3), Want(1, {2, 0, 1}, tokens));
    // Beyond these, two clusters score 0 alike.
    if (tokens <= 11) {
      EXPECT_EQ(reads.Of(0), Want(0, {0}, tokens));
      EXPECT_EQ(reads.Of(2), Want(1, {2}, tokens));
    }
    for (int64_t q = 0; q < 4; ++q) EXPECT_EQ(std::ssize(reads.Of(q)), tokens);
  }
}

TEST_F(ClusterKvTest, DecodedEntriesAreAlwaysRead) {
  const auto reader =
      MakeStage<Reader>(StageKind::kRead, "clusterkv", R"({"sinks": 1, "span": 10, "tokens": 12})");
  view_.SetLength(0, 26);
  view_.SetLength(1, 26);
  const auto state = reader->Begin(view_);
  view_.SetLength(0, 31);
  view_.SetLength(1, 30);
  reader->Append(view_, std::vector<int64_t>{26, 26}, *state);
  const Reads reads = SelectWith(*reader, view_, *state, q_);
  EXPECT_EQ(reads.Of(1), Want(0, {1, 2, 0}, 12, 26, 31));
  EXPECT_EQ(reads.Of(3), Want(1, {2, 0, 1}, 12, 26, 30));
}

TEST_F(ClusterKvTest, ReadsAllOfDenseLayersAndShortPrompts) {
  for (const char* params : {R"({"dense_layers": 3, "tokens": 17})", R"({"tokens": 31})"}) {
    const auto reader = MakeStage<Reader>(StageKind::kRead, "clusterkv", params);
    const auto state = reader->Begin(view_);
    EXPECT_EQ(state->bytes(), 0);
    EXPECT_FALSE(SelectWith(*reader, view_, *state, q_).chosen);
  }
  const auto reader = MakeStage<Reader>(StageKind::kRead, "clusterkv", R"({"tokens": 16})");
  const Status status = reader->Check(view_.shape());
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("sinks 16 are all of the 16 tokens"));
}

}  // namespace
}  // namespace kvgauge
