// SPDX-License-Identifier: Apache-2.0
// CriticalKV's two stages against plain loops in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fake_view.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

std::vector<std::vector<int32_t>> Kept(LayerView& view, const std::vector<float>& scores,
                                       const std::vector<int64_t>& allocated,
                                       const std::string& params = "{}") {
  const auto stage = MakeStage<Reducer>(StageKind::kReduce, "critical", params);
  EXPECT_EQ(stage->needs(), (Needs{.output_weights = true}));
  const Tensor tensor = View(scores, {view.shape().kv_heads, view.width()});
  std::vector<std::vector<int32_t>> kept;
  for (const HeadPlan& plan : stage->Reduce(view, {.scores = tensor, .allocated = allocated}, {})) {
    EXPECT_TRUE(plan.keys.empty());
    kept.push_back(Ints(plan.keep));
  }
  return kept;
}

// By the definition: sizes of W v, the best of the scores, then the best of both.
std::vector<int32_t> Wanted(const FakeView& view, const std::vector<float>& all, int64_t head,
                            int64_t count, double first, double epsilon) {
  const ModelShape& shape = view.shape();
  const int64_t n = view.width(), dim = shape.value_dim, width = shape.hidden_size;
  std::vector<double> scores(all.begin() + head * n, all.begin() + (head + 1) * n);
  const auto best = [&](int64_t number) {
    std::vector<int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
    order.resize(static_cast<size_t>(number));
    std::sort(order.begin(), order.end());
    return order;
  };
  const std::vector<int32_t> sure =
      best(std::max<int64_t>(1, static_cast<int64_t>(first * static_cast<double>(count))));
  for (int64_t j = 0; j < n; ++j) {
    if (std::isinf(scores[j])) continue;
    double size = 0;
    for (int64_t q = head * shape.group(); q < (head + 1) * shape.group(); ++q) {
      for (int64_t o = 0; o < width; ++o) {
        double sum = 0;
        for (int64_t c = 0; c < dim; ++c) {
          sum += double{view.output_weights[(q * dim + c) * width + o]} *
                 view.values[head][j * dim + c];
        }
        size += std::abs(sum) / static_cast<double>(shape.group());
      }
    }
    scores[j] = (scores[j] + epsilon) * size;
  }
  for (const int32_t j : sure) scores[j] = kInf;
  return best(count);
}

TEST(CriticalTest, SecondHalfIsScoresTimesSizes) {
  FakeView view(SmallShape(1, 2, 3, 8), 301);
  view.Randomize(8);
  view.output_weights = RandomValues(std::ssize(view.output_weights), 3, 0.4f);
  std::vector<float> scores;
  for (const float x : RandomValues(2 * 301, 5)) scores.push_back(x * x * 1e-3f);
  std::fill(scores.begin() + 290, scores.begin() + 301, kInf);
  int differ = 0;
  for (const int64_t count : {12, 40, 150, 300}) {
    for (const double first : {0.0, 0.25, 0.5, 1.0}) {
      const auto kept = Kept(view, scores, {count, count / 2},
                             StrCat("{\"first\": ", first, ", \"epsilon\": 0.002}"));
      for (const int64_t h : {0, 1}) {
        const int64_t own = h == 0 ? count : count / 2;
        if (first == 0) continue;
        EXPECT_EQ(kept[h], Wanted(view, scores, h, own, first, 0.002)) << count << " " << first;
        differ += first < 1 && kept[h] != Wanted(view, scores, h, own, 1.0, 0.002);
      }
    }
  }
  EXPECT_GT(differ, 4) << "values make no difference";
}

// The score says 1 and 2, what values do to the output says 3.
TEST(CriticalTest, ALoudValueDisplacesAScoreInTheSecondStageOnly) {
  FakeView view(SmallShape(1, 1, 1, 2), 5);
  view.values[0] = {1, 0, 1, 0, 1, 0, -8, 0, 1, 0};
  view.output_weights = {2, -1, 0, 0};
  const std::vector<float> scores = {0.1f, 0.5f, 0.4f, 0.3f, 0.2f};
  EXPECT_THAT(Kept(view, scores, {2}, R"({"first": 1})")[0], ElementsAre(1, 2));
  EXPECT_THAT(Kept(view, scores, {2}, R"({"first": 0.5})")[0], ElementsAre(1, 3));
  // However little of it: one is always chosen by scores alone.
  EXPECT_THAT(Kept(view, scores, {2}, R"({"first": 0.1})")[0], ElementsAre(1, 3));
  EXPECT_THAT(Kept(view, scores, {5})[0], ElementsAre(0, 1, 2, 3, 4));
}

// Values that do nothing, and protected entries beyond the first stage's share.
TEST(CriticalTest, ProtectedEntriesStay) {
  FakeView view(SmallShape(1, 1, 1, 2), 6);
  view.values[0] = {5, 0, 5, 0, 5, 0, 0, 0, 0, 0, 0, 0};
  view.output_weights = {2, -1, 0, 0};
  const std::vector<float> scores = {0.1f, 0.5f, 0.4f, kInf, kInf, kForcedScore};
  EXPECT_THAT(Kept(view, scores, {4})[0], ElementsAre(1, 3, 4, 5));
  EXPECT_THAT(Kept(view, scores, {3})[0], ElementsAre(3, 4, 5));
}

TEST(CriticalTest, HeadsOfDifferentLengths) {
  FakeView view(SmallShape(1, 2, 1, 2), 4);
  view.SetLength(1, 2);
  view.values[0] = view.values[1] = {1, 0, 1, 0, 1, 0, 1, 0};
  view.output_weights.assign(view.output_weights.size(), 1.0f);
  const std::vector<float> scores = {4, 1, 3, 2, 1, 2, 9, 9};
  const auto kept = Kept(view, scores, {2, 1});
  EXPECT_THAT(kept[0], ElementsAre(0, 2));
  EXPECT_THAT(kept[1], ElementsAre(1));
}

}  // namespace
}  // namespace kvgauge
