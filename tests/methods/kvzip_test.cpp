// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "fake_view.h"
#include "methods/tensors.h"
#include "stage_calls.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

// A text of n bytes is n times the token -n.
Result<std::vector<int32_t>> BytesAsIds(std::string_view text) {
  return std::vector<int32_t>(text.size(), -static_cast<int32_t>(text.size()));
}

TEST(KvZipTest, ProbesRepeatChunkAfterChunk) {
  std::vector<int32_t> prompt(25);
  std::iota(prompt.begin(), prompt.end(), 100);
  const auto scorer = ScorerOf("kvzip", R"({"chunk": 10, "sinks": 4})");
  const auto probes = scorer->Probes({.prompt = prompt, .encode = BytesAsIds});
  ASSERT_TRUE(probes.ok());
  ASSERT_EQ(probes->size(), 3u);
  const std::vector<std::array<int64_t, 3>> ranges = {{0, 0, 10}, {4, 10, 20}, {4, 20, 25}};
  for (size_t i = 0; i < 3; ++i) {
    const Probe& probe = (*probes)[i];
    EXPECT_THAT((std::array{probe.sinks, probe.begin, probe.end}), ranges[i]);
    EXPECT_LE(std::ssize(probe.ids), scorer->ProbeRows(25));
    EXPECT_FALSE(probe.over_input_length);
    // The chunk ends the probe, a line break precedes it, and before that come the instruction and
    // how the chunk before ended.
    const int64_t n = probe.end - probe.begin, overlap = i == 0 ? 0 : 8;
    const std::vector<int32_t> tail(probe.ids.end() - n - 1 - overlap, probe.ids.end());
    std::vector<int32_t> want(prompt.begin() + probe.begin - overlap, prompt.begin() + probe.begin);
    want.push_back(-1);
    want.insert(want.end(), prompt.begin() + probe.begin, prompt.begin() + probe.end);
    EXPECT_EQ(tail, want);
    const int32_t asked = i == 0 ? 38 : 64;
    EXPECT_EQ(std::count(probe.ids.begin(), probe.ids.end(), -asked), asked);
    EXPECT_EQ(std::ssize(probe.ids), asked + std::ssize(want));
  }
}

TEST(KvZipTest, TheBestQueryHeadCounts) {
  FakeView view(SmallShape(2, 1, 2, 2), 4);
  view.probe_maxima = {0.9f, 0.1f, 0.3f, 0.2f, 0.0f, 0.4f, 0.1f, 0.6f};
  const std::vector<float> scores = ScoreWith(*ScorerOf("kvzip", R"({"sinks": 1})"), view);
  EXPECT_THAT(scores, ElementsAre(kForcedScore, 0.4f, 0.3f, 0.6f));
}

// The length of the value behind the output projection, of each query head its own.
TEST(KvZipTest, PlusWeighsByWhatTheValueAddsToTheOutput) {
  FakeView view(SmallShape(2, 1, 2, 2), 2);
  view.probe_maxima = {0.5f, 0.25f, 0.5f, 0.5f};
  view.values[0] = {1, 2, 3, 0};
  const std::vector<float> scores =
      ScoreWith(*ScorerOf("kvzip", R"({"sinks": 0, "plus": true})"), view);
  std::vector<float> want;
  const int64_t hidden = view.shape().hidden_size;
  for (int64_t i = 0; i < 2; ++i) {
    double best = 0;
    for (int64_t q = 0; q < 2; ++q) {
      const Tensor weights = view.OutputWeights(q);
      double squares = 0;
      for (int64_t c = 0; c < hidden; ++c) {
        double sum = 0;
        for (int64_t d = 0; d < 2; ++d) sum += view.values[0][i * 2 + d] * weights[d].f32()[c];
        squares += sum * sum;
      }
      best = std::max(best, view.probe_maxima[q * 2 + i] * std::sqrt(squares));
    }
    want.push_back(static_cast<float>(best));
  }
  EXPECT_TRUE(AllWithin(scores, want, 1e-5));
}

class WholeCacheTest : public ::testing::Test {
 protected:
  Allocation Of(const std::string& id, int64_t per_head, const std::vector<float>& first,
                const std::vector<float>& second) {
    const ModelShape shape = SmallShape(2, 2);
    FakeView below(shape, 4, 0), above(shape, 4, 1);
    return AllocateWith(id, "{}", shape, 4, per_head, {&below, &above},
                        {View(first, {2, 4}), View(second, {2, 4})});
  }
  static constexpr float kInf = std::numeric_limits<float>::infinity();
};

TEST_F(WholeCacheTest, HeadsOfAllLayersShareOneBudget) {
  const std::vector<float> first = {kInf, 9, 8, kInf, kInf, 1, 2, kInf};
  const std::vector<float> second = {kInf, 7, 1, kInf, kInf, 0, 0, kInf};
  EXPECT_EQ(Of("global", 2, first, second), Allocation({{2, 2}, {2, 2}}));
  EXPECT_EQ(Of("global", 3, first, second), Allocation({{4, 3}, {3, 2}}));
  EXPECT_EQ(Of("global", 4, first, second), Allocation({{4, 4}, {4, 4}}));
  // Equal ones: the lower layer's come first.
  EXPECT_EQ(
      Of("global", 3, {kInf, 5, 5, kInf, kInf, 5, 5, kInf}, {kInf, 5, 5, kInf, kInf, 5, 5, kInf}),
      Allocation({{4, 4}, {2, 2}}));
}

TEST_F(WholeCacheTest, LayersShareByMeansAtEachRank) {
  // By rank the upper layer has 9 and 2 behind what is protected, and the lower one as much, since
  // it is to be the largest.
  const std::vector<float> first = {kInf, 1, 2, kInf, kInf, 2, 1, kInf};
  const std::vector<float> second = {kInf, 9, 1, kInf, kInf, 3, 9, kInf};
  EXPECT_EQ(Of("composite", 2, first, second), Allocation({{2, 2}, {2, 2}}));
  EXPECT_EQ(Of("composite", 3, first, second), Allocation({{3, 3}, {3, 3}}));
  EXPECT_EQ(Of("composite", 3, second, first), Allocation({{4, 4}, {2, 2}}));
  EXPECT_EQ(Of("composite", 4, first, second), Allocation({{4, 4}, {4, 4}}));
}

TEST(KvComposeTest, AddsTheMeanOfTheHeads) {
  FakeView view(SmallShape(2, 2, 2, 2), 2);
  view.probe_maxima = {0.2f, 0.4f, 0.4f, 0.6f, 1.0f, 0.0f, 0.0f, 0.0f};
  std::vector<float> scores = ScoreWith(*ScorerOf("kvcompose", R"({"mean": false})"), view);
  EXPECT_TRUE(AllWithin(scores, std::vector<float>{0.3f, 0.5f, 0.5f, 0.0f}, 1e-6));
  scores = ScoreWith(*ScorerOf("kvcompose", "{}"), view);
  EXPECT_TRUE(AllWithin(scores, std::vector<float>{0.7f, 0.75f, 0.9f, 0.25f}, 1e-6));
  const auto probes =
      ScorerOf("kvcompose", "{}")->Probes({.prompt = std::vector<int32_t>{7, 8, 9}, .encode = {}});
  ASSERT_TRUE(probes.ok());
  ASSERT_EQ(probes->size(), 1u);
  EXPECT_THAT((*probes)[0].ids, ElementsAre(7, 8, 9));
  EXPECT_EQ((*probes)[0].end, 3);
}

}  // namespace
}  // namespace kvgauge
