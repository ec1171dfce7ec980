// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "fake_view.h"
#include "methods/split_by_weight.h"
#include "methods/tensors.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Entries 0 and 1 stay; 2 is like 0 with cosine 1, 3 like both with 0.7071.
FakeView D2oView() {
  FakeView view(SmallShape(1, 1, 1, 2), 4);
  view.keys[0] = {1, 0, 0, 2, 3, 0, 1, 1};
  view.values[0] = {1, 2, 3, 4, 5, 6, 7, 8};
  return view;
}

TEST(D2oReducerTest, HandWorked) {
  FakeView view = D2oView();
  const auto stage = ReducerOf("d2o");
  const auto state = stage->Begin();
  // The threshold is (1 + 0.7071) / 2: entry 3 is dropped.
  const HeadPlan plan = ReduceWith(*stage, view, {9, 9, 0, 0}, {2}, state.get())[0];
  EXPECT_THAT(Ints(plan.keep), ElementsAre(0, 1));
  EXPECT_THAT(Ints(plan.keys.from), ElementsAre(2));
  EXPECT_THAT(Ints(plan.keys.to), ElementsAre(0));
  EXPECT_TRUE(AllWithin(Floats(plan.keys.weight), std::vector<float>{0.5f}, 1e-6));
  EXPECT_TRUE(AllWithin(Floats(plan.keys.self), std::vector<float>{0.5f, 1, 1, 1}, 1e-6));
  const std::vector<double> keys = Merged(plan.keys, Ints(plan.keep), view.keys[0], 2);
  EXPECT_NEAR(keys[0], 2, 1e-6);  // (1 + 3) / 2
  EXPECT_NEAR(keys[3], 2, 1e-6);
  EXPECT_NEAR(Merged(plan.values, Ints(plan.keep), view.values[0], 2)[1], 4, 1e-6);  // (2 + 6) / 2
}

TEST(D2oReducerTest, ThresholdMovesByHalves) {
  FakeView view = D2oView();
  const auto stage = ReducerOf("d2o");
  const auto state = stage->Begin();
  ReduceWith(*stage, view, {9, 9, 0, 0}, {2}, state.get());  // 0.8536
  // Alone its cosine is its own mean: 0.7071 against 0.5 * 0.8536 + 0.5 * 0.7071 falls short.
  view.SetLength(0, 4);
  EXPECT_TRUE(ReduceWith(*stage, view, {9, 9, 9, 0}, {3}, state.get(), 1)[0].keys.empty());
  // Cosine 1 against 0.5 * 0.7803 + 0.5 passes.
  EXPECT_THAT(Ints(ReduceWith(*stage, view, {9, 9, 0, 9}, {3}, state.get(), 2)[0].keys.from),
              ElementsAre(2));
}

TEST(D2oReducerTest, ExponentialWeightsSumToOne) {
  FakeView view = D2oView();
  const auto stage = ReducerOf("d2o", R"({"weight": "exp", "alpha": 0, "beta": 0})");
  const auto state = stage->Begin();
  ReduceWith(*stage, view, {9, 9, 0, 0}, {2}, state.get());
  // The second threshold is 0: both go into entry 0, the lower of the two nearest of entry 3.
  const HeadPlan plan = ReduceWith(*stage, view, {9, 9, 0, 0}, {2}, state.get(), 1)[0];
  EXPECT_THAT(Ints(plan.keys.from), ElementsAre(2, 3));
  EXPECT_THAT(Ints(plan.keys.to), ElementsAre(0, 0));
  const double e = std::exp(1.0), other = std::exp(std::sqrt(0.5)), sum = 2 * e + other;
  EXPECT_NEAR(Floats(plan.keys.weight)[0], e / sum, 1e-6);
  EXPECT_NEAR(Floats(plan.keys.weight)[1], other / sum, 1e-6);
  EXPECT_NEAR(Floats(plan.keys.self)[0], e / sum, 1e-6);
  EXPECT_NEAR(Floats(plan.keys.self)[1], 1, 1e-6);
}

// The second head gives up entries that are all like what it keeps, and carries the first with it;
// with a threshold for each head those of the first are dropped, as 0 is below the mean of 1/2.
TEST(D2oReducerTest, HeadsAreHeldAgainstTheThresholdTogether) {
  FakeView view(SmallShape(1, 2, 1, 2), 3);
  view.keys[0] = {1, 0, 0, 1, 0, 1};
  view.keys[1] = {1, 0, 1, 0, 1, 0};
  for (const bool by_head : {false, true}) {
    const auto stage = ReducerOf("d2o", by_head ? R"({"threshold": "head"})" : "{}");
    const auto state = stage->Begin();
    const std::vector<HeadPlan> plans =
        ReduceWith(*stage, view, {9, 0, 0, 9, 0, 0}, {1, 1}, state.get());
    EXPECT_EQ(plans[0].keys.empty(), by_head);
    EXPECT_THAT(Ints(plans[1].keys.from), ElementsAre(1, 2));
  }
}

// More entries than one block of similarities; every target and weight against plain loops.
TEST(D2oReducerTest, AgreesWithPlainLoops) {
  const int64_t n = 1500, kept = 200, dim = 8;
  FakeView view(SmallShape(1, 2, 1, dim), n);
  std::vector<float> scores;
  for (int64_t h = 0; h < 2; ++h) {
    view.keys[h] = RandomValues(n * dim, 20 + h);
    for (int64_t j = 0; j < n; ++j) scores.push_back(j % 7 == 3 && j < 1400 ? 1.0f : 0.0f);
  }
  const auto stage = ReducerOf("d2o");
  const auto state = stage->Begin();
  const std::vector<HeadPlan> plans = ReduceWith(*stage, view, scores, {kept, kept}, state.get());
  std::vector<double> likeness[2];
  std::vector<int32_t> nearest[2], gone[2];
  double sum = 0;
  for (int64_t h = 0; h < 2; ++h) {
    const auto cosine = [&](int64_t a, int64_t b) {
      double dot = 0, na = 0, nb = 0;
      for (int64_t c = 0; c < dim; ++c) {
        const double x = view.keys[h][a * dim + c], y = view.keys[h][b * dim + c];
        dot += x * y;
        na += x * x;
        nb += y * y;
      }
      return dot / std::sqrt(na * nb);
    };
    for (int64_t i = 0; i < n; ++i) {
      if (i % 7 == 3 && i < 1400) continue;
      double best = -2;
      int32_t at = 0;
      for (int64_t j = 3; j < 1400; j += 7) {
        if (cosine(i, j) > best + 1e-7) {
          best = cosine(i, j);
          at = static_cast<int32_t>(j);
        }
      }
      gone[h].push_back(static_cast<int32_t>(i));
      nearest[h].push_back(at);
      likeness[h].push_back(best);
      sum += best;
    }
  }
  const double threshold = sum / (2.0 * (n - kept));
  for (int64_t h = 0; h < 2; ++h) {
    std::vector<int32_t> from, to;
    for (size_t i = 0; i < gone[h].size(); ++i) {
      // The released code averages over heads, rank by rank.
      const double mean = (likeness[0][i] + likeness[1][i]) / 2;
      ASSERT_GT(std::abs(mean - threshold), 1e-7);
      if (mean < threshold) continue;
      from.push_back(gone[h][i]);
      to.push_back(nearest[h][i]);
    }
    EXPECT_EQ(Ints(plans[h].keys.from), from);
    EXPECT_EQ(Ints(plans[h].keys.to), to);
    for (size_t i = 0; i < to.size(); ++i) {
      const auto count = static_cast<double>(std::count(to.begin(), to.end(), to[i]));
      EXPECT_NEAR(Floats(plans[h].keys.self)[to[i]], 1 / (1 + count), 1e-6);
      break;
    }
  }
}

// Three query heads whose column sums are 0 but for one entry: their variances are 0 or 1 once
// scaled, so F is the share of heads that have it.
FakeView LayerWithPeaks(const ModelShape& shape, int64_t length, int64_t peaks) {
  FakeView view(shape, length);
  for (int64_t h = 3 - peaks; h < 3; ++h) view.At(h, 0, 0) = 1;
  return view;
}

// The first two and the last of 32 layers stay whole, and that share of other numbers: none of 4,
// so that a budget of 20 % is not refused.
TEST(D2oAllocatorTest, WholeLayersAreAShareOfTheDepth) {
  const std::tuple<int64_t, int64_t, int64_t> cases[] = {
      {4, 0, 0}, {16, 1, 1}, {32, 2, 1}, {64, 4, 2}};
  for (const auto& [layers, first, last] : cases) {
    const ModelShape shape = SmallShape(layers, 1, 3);
    FakeView layer = LayerWithPeaks(shape, 100, 1);
    const std::vector<LayerView*> views(static_cast<size_t>(layers), &layer);
    const AllocationInput input{
        .shape = &shape, .length = 100, .per_head = 20, .protected_entries = 2, .views = views};
    const Result<Allocation> allocation = AllocatorOf("d2o")->Allocate(input);
    ASSERT_TRUE(allocation.ok()) << allocation.error().message;
    for (int64_t l = 0; l < layers; ++l) {
      const bool whole = l < first || l >= layers - last;
      EXPECT_EQ((*allocation)[static_cast<size_t>(l)][0] == 100, whole) << l << " of " << layers;
    }
  }
}

TEST(D2oAllocatorTest, HandWorked) {
  const ModelShape shape = SmallShape(2, 1, 3);
  FakeView spiky = LayerWithPeaks(shape, 100, 2), flat = LayerWithPeaks(shape, 100, 1);
  LayerView* const views[] = {&spiky, &flat};
  AllocationInput input{
      .shape = &shape, .length = 100, .per_head = 10, .protected_entries = 2, .views = views};
  const auto entries = [&](const char* params) {
    return OfFirstHead(*AllocatorOf("d2o", params)->Allocate(input));
  };
  // Of 20: shares exp(-2/3) to exp(-1/3).
  EXPECT_THAT(entries(R"({"whole_first": 0, "whole_last": 0})"), ElementsAre(8, 12));
  EXPECT_THAT(entries(R"({"whole_first": 0, "whole_last": 0, "compat": true})"),
              ElementsAre(8, 11));
  EXPECT_THAT(entries(R"({"whole_first": 0.5, "whole_last": 0, "compat": true})"),
              ElementsAre(100, 11));
  const auto refused =
      AllocatorOf("d2o", R"({"whole_first": 0.5, "whole_last": 0})")->Allocate(input);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("1 of 2 layers stay whole"));
  EXPECT_THAT(refused.error().message, HasSubstr("whole_first"));
  EXPECT_FALSE(AllocatorOf("d2o", R"({"whole_first": 1})")->Allocate(input).ok());
  EXPECT_FALSE(AllocatorOf("d2o", R"({"whole_first": 1, "compat": true})")->Allocate(input).ok());
  input.per_head = 60;
  EXPECT_THAT(entries(R"({"whole_first": 0.5, "whole_last": 0})"), ElementsAre(100, 20));
  input.per_head = 100;
  EXPECT_THAT(entries("{}"), ElementsAre(100, 100));
}

}  // namespace
}  // namespace kvgauge
