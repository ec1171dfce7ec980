// SPDX-License-Identifier: Apache-2.0
// Reducers that see entries in runs, and allocators and readers that count or cluster them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "fake_view.h"
#include "reads.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::vector<int32_t>> Kept(const std::string& id, const std::string& params,
                                       LayerView& view, const std::vector<float>& scores,
                                       const std::vector<int64_t>& allotted, int64_t step = 0) {
  const auto stage = MakeStage<Reducer>(StageKind::kReduce, id, params);
  const Tensor tensor = View(scores, {view.shape().kv_heads, view.width()});
  std::vector<std::vector<int32_t>> kept;
  for (const HeadPlan& plan :
       stage->Reduce(view, {.scores = tensor, .allotted = allotted, .step = step}, nullptr)) {
    EXPECT_TRUE(plan.keys.empty() && plan.values.empty() && plan.log_weight.empty());
    kept.push_back(Ints(plan.keep));
  }
  return kept;
}

// One sink, runs 1-3, 4-6 and 7-9, and entry 10.
TEST(PartitionsTest, RunsKeepEqualShares) {
  FakeView view(SmallShape(), 11);
  const std::string params = R"({"sinks": 1, "size": 3})";
  const std::vector<float> scores = {0, 0.9f, 0.8f, 0.7f, 0.1f, 0.3f, 0.2f, 0, 0, 0, 0};
  const auto kept = [&](int64_t allotted) {
    return Kept("partitions", params, view, scores, {allotted})[0];
  };
  // Five are outside of the two open runs.
  EXPECT_THAT(kept(7), ElementsAre(0, 1, 5, 7, 8, 9, 10));
  EXPECT_THAT(kept(9), ElementsAre(0, 1, 2, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(kept(8), ElementsAre(0, 1, 2, 5, 7, 8, 9, 10));  // one over: the best that is left
  EXPECT_EQ(kept(11).size(), 11u);
  // Too little for the newest: by score.
  EXPECT_THAT(kept(3), ElementsAre(1, 2, 3));
  // Protected entries stay whatever runs are due.
  const std::vector<float> forced = {kInf, 0.9f, 0.8f, 0.7f, kInf, kInf, 0.2f, 0, 0, 0, 0};
  EXPECT_THAT(Kept("partitions", params, view, forced, {7})[0], ElementsAre(0, 1, 4, 5, 7, 8, 9));
  // A prompt without two runs.
  EXPECT_THAT(Kept("partitions", R"({"sinks": 1, "size": 6})", view, scores, {3})[0],
              ElementsAre(1, 2, 3));
}

TEST(ChunksTest, WholeRunsByTheirMean) {
  FakeView view(SmallShape(), 8);
  // Means 2, 3, 1 and, of the run cut short, 4.
  const std::vector<float> scores = {4, 1, 1, 0, 9, 0, 4, 4};
  const auto kept = [&](int64_t allotted) {
    return Kept("chunks", R"({"size": 3})", view, scores, {allotted})[0];
  };
  EXPECT_THAT(kept(2), ElementsAre(6, 7));
  EXPECT_THAT(kept(5), ElementsAre(3, 4, 5, 6, 7));
  EXPECT_THAT(kept(6), ElementsAre(0, 3, 4, 5, 6, 7));  // the first of the next
  EXPECT_THAT(kept(1), ElementsAre(6));
  EXPECT_EQ(kept(8).size(), 8u);
  // Protected entries come first and count in no mean: 0 1 2 has a mean of 1 without the sink.
  const std::vector<float> forced = {kInf, 1, 1, 0, 9, 0, kInf, kInf};
  EXPECT_THAT(Kept("chunks", R"({"size": 3})", view, forced, {3})[0], ElementsAre(0, 6, 7));
  EXPECT_THAT(Kept("chunks", R"({"size": 3})", view, forced, {6})[0],
              ElementsAre(0, 3, 4, 5, 6, 7));
}

TEST(ChunksTest, HeadsChooseTogetherForThePrompt) {
  FakeView view(SmallShape(1, 2), 4);
  // Apart the first run is better for one head, the second for the other; summed the second.
  const std::vector<float> scores = {3, 3, 2, 2, 0, 0, 4, 4};
  EXPECT_THAT(Kept("chunks", R"({"size": 2})", view, scores, {2, 2}),
              ElementsAre(ElementsAre(2, 3), ElementsAre(2, 3)));
  for (const auto& [params, step] :
       {std::pair(R"({"size": 2, "heads": "own"})", 0), std::pair(R"({"size": 2})", 4)}) {
    EXPECT_THAT(Kept("chunks", params, view, scores, {2, 3}, step),
                ElementsAre(ElementsAre(0, 1), ElementsAre(0, 2, 3)));
  }
}

class LayerShares : public ::testing::Test {
 protected:
  static constexpr int64_t kLength = 10;

  LayerShares()
      : shape_(SmallShape(2, 2)), lower_(shape_, kLength, 0), upper_(shape_, kLength, 1) {}

  // One entry of each head is protected.
  std::vector<int64_t> OfLayers(const std::string& id, const std::string& params,
                                int64_t per_head) {
    const Tensor tensors[] = {View(scores_[0], {2, kLength}), View(scores_[1], {2, kLength})};
    LayerView* const views[] = {&lower_, &upper_};
    const auto stage = MakeStage<Allocator>(StageKind::kAllocate, id, params);
    EXPECT_TRUE(stage->needs_scores());
    const Result<Allotment> allotment = stage->Allocate({.shape = &shape_,
                                                         .length = kLength,
                                                         .per_head = per_head,
                                                         .protected_entries = 1,
                                                         .scores = tensors,
                                                         .views = views});
    EXPECT_TRUE(allotment.ok());
    std::vector<int64_t> entries;
    for (const auto& layer : *allotment) {
      EXPECT_EQ(layer[0], layer[1]);
      entries.push_back(layer[0]);
    }
    return entries;
  }

  ModelShape shape_;
  FakeView lower_, upper_;
  std::vector<float> scores_[2];
};

TEST_F(LayerShares, DynamicKvCountsTheBestOfAll) {
  scores_[0] = {9, 8, 7, 6, 5, 1, 1, 1, 1, kInf, 9, 8, 7, 6, 5, 1, 1, 1, 1, kInf};
  scores_[1] = {4, 4, 2, 2, 2, 2, 2, 2, 2, kInf, 4, 2, 2, 2, 2, 2, 2, 2, 2, kInf};
  // The best 2 * 2 * 3 beside protected ones: ten in the lower layer, two in the upper.
  EXPECT_THAT(OfLayers("dynamickv", "{}", 4), ElementsAre(6, 2));
  EXPECT_THAT(OfLayers("dynamickv", R"({"most": 1.2})", 4), ElementsAre(5, 3));
  EXPECT_THAT(OfLayers("dynamickv", "{}", 10), ElementsAre(10, 10));
  EXPECT_THAT(OfLayers("dynamickv", "{}", 1), ElementsAre(1, 1));
  std::swap(scores_[0], scores_[1]);
  EXPECT_THAT(OfLayers("dynamickv", "{}", 4), ElementsAre(2, 6));
}

TEST_F(LayerShares, ZigZagGoesByHowManyHoldTheMass) {
  // One entry has all of it, and nine are needed for nine tenths of ten: but one is protected, so 9
  // of 9 for the second head and 0.9 * 9 = 8.1 rounded up.
  scores_[0] = {1, 0, 0, 0, 0, 0, 0, 0, 0, kInf, 1, 0, 0, 0, 0, 0, 0, 0, 0, kInf};
  scores_[1] = {1, 1, 1, 1, 1, 1, 1, 1, 1, kInf, 1, 1, 1, 1, 1, 1, 1, 1, 1, kInf};
  // 5 on average: 1 each, and 8 by 1 to 9.
  EXPECT_THAT(OfLayers("zigzagkv", "{}", 5), ElementsAre(2, 8));
  EXPECT_THAT(OfLayers("zigzagkv", R"({"floor": 1})", 5), ElementsAre(5, 5));
  EXPECT_THAT(OfLayers("zigzagkv", R"({"floor": 0})", 5), ElementsAre(1, 9));
  // Five of the nine hold half.
  EXPECT_THAT(OfLayers("zigzagkv", R"({"floor": 0, "mass": 0.5})", 6), ElementsAre(2, 10));
  EXPECT_THAT(OfLayers("zigzagkv", "{}", 10), ElementsAre(10, 10));
  // Scores of nothing, or below it, need nothing.
  scores_[0].assign(20, -1.0f);
  scores_[1].assign(20, 0.0f);
  EXPECT_THAT(OfLayers("zigzagkv", "{}", 5), ElementsAre(5, 5));
}

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
