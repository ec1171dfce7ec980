// SPDX-License-Identifier: Apache-2.0
// Reducers and triggers against hand-worked cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

std::unique_ptr<Reducer> ReducerOf(const std::string& id, const std::string& params = "{}") {
  return MakeStage<Reducer>(StageKind::kReduce, id, params);
}

std::vector<HeadPlan> ReduceWith(const Reducer& stage, LayerView& view,
                                 const std::vector<float>& scores,
                                 const std::vector<int64_t>& allotted,
                                 Reducer::State* state = nullptr, int64_t step = 0) {
  const Tensor tensor = View(scores, {view.shape().kv_heads, view.width()});
  return stage.Reduce(view, {.scores = tensor, .allotted = allotted, .step = step}, state);
}

// What the list makes of rows, in double.
std::vector<double> Merged(const MergeList& list, const std::vector<int32_t>& keep,
                           const std::vector<float>& rows, int64_t dim) {
  std::vector<double> out(rows.begin(), rows.end());
  if (list.empty()) return out;
  const std::vector<int32_t> from = Ints(list.from), to = Ints(list.to);
  const std::vector<float> weight = Floats(list.weight);
  for (size_t i = 0; !list.self.empty() && i < out.size(); ++i) {
    out[i] *= Floats(list.self)[i / static_cast<size_t>(dim)];
  }
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] < 0) continue;
    const size_t first = std::find(keep.begin(), keep.end(), to[i]) - keep.begin();
    for (size_t k = first; k < std::min(keep.size(), first + list.spread); ++k) {
      for (int64_t c = 0; c < dim; ++c) {
        out[keep[k] * dim + c] += weight[i] * rows[from[i] * dim + c];
      }
    }
  }
  return out;
}

TEST(TopKTest, EachHeadItsOwn) {
  FakeView view(SmallShape(1, 2), 5);
  view.SetLength(1, 3);
  // The second head holds three entries: what stands behind them does not count.
  const std::vector<float> scores = {1, 5, kInf, 2, 5, 3, 1, 2, 9, 9};
  const auto stage = ReducerOf("top_k");
  const std::vector<HeadPlan> plans = ReduceWith(*stage, view, scores, {3, 2});
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_THAT(Ints(plans[0].keep), ElementsAre(1, 2, 4));
  EXPECT_THAT(Ints(plans[1].keep), ElementsAre(0, 2));
  EXPECT_TRUE(plans[0].keys.empty());
  EXPECT_THAT(Ints(ReduceWith(*stage, view, scores, {9, 9})[1].keep), ElementsAre(0, 1, 2));
}

// Attention of the newest row 0.1 0.2 0.1 0.2 0.3 0.1.
FakeView CamView() {
  FakeView view(SmallShape(1, 1, 1, 2), 6);
  const std::vector<float> row = {0.1f, 0.2f, 0.1f, 0.2f, 0.3f, 0.1f};
  for (int64_t j = 0; j < 6; ++j) view.At(0, 5, j) = view.step[j] = row[j];
  view.values[0] = RandomValues(12, 9);
  return view;
}

TEST(CamTest, HandWorked) {
  FakeView view = CamView();
  const auto stage = ReducerOf("cam", R"({"merge": 2, "expectation": true})");
  EXPECT_EQ(stage->needs(), (Needs{.window = 1, .step_attention = true}));
  // Entry 1 goes: 0.2 against a mean of 0.15 is certain; entries 2 and 3 get a half each.
  for (const int64_t step : {0, 7}) {
    const HeadPlan plan = ReduceWith(*stage, view, {9, 0, 9, 9, 9, 9}, {5}, nullptr, step)[0];
    EXPECT_THAT(Ints(plan.keep), ElementsAre(0, 2, 3, 4, 5));
    EXPECT_THAT(Ints(plan.values.from), ElementsAre(1));
    EXPECT_THAT(Ints(plan.values.to), ElementsAre(2));
    EXPECT_EQ(plan.values.spread, 2);
    EXPECT_TRUE(AllWithin(Floats(plan.values.weight), std::vector<float>{0.5f}, 1e-6));
    EXPECT_TRUE(plan.keys.empty());
    EXPECT_TRUE(plan.values.self.empty());
    // Nothing is lost: what stays holds the sum of all values.
    const std::vector<double> merged = Merged(plan.values, Ints(plan.keep), view.values[0], 2);
    for (int64_t c = 0; c < 2; ++c) {
      double before = 0, after = -merged[2 + c];
      for (int64_t i = 0; i < 6; ++i) {
        before += view.values[0][2 * i + c];
        after += merged[2 * i + c];
      }
      EXPECT_NEAR(after, before, 1e-5);
    }
  }
  // Entries 2 and 5 go: 0.1 against (0.2 + 0.3) / 2; nothing follows the last one.
  const HeadPlan two = ReduceWith(*stage, view, {9, 9, 0, 9, 9, 0}, {4})[0];
  EXPECT_THAT(Ints(two.values.from), ElementsAre(2, 5));
  EXPECT_THAT(Ints(two.values.to), ElementsAre(3, -1));
  EXPECT_NEAR(Floats(two.values.weight)[0], 0.2f, 1e-6);
  // Nothing goes.
  EXPECT_TRUE(ReduceWith(*stage, view, {9, 9, 9, 9, 9, 9}, {6})[0].values.empty());
}

TEST(CamTest, WithoutAttentionNothingIsAdded) {
  FakeView view(SmallShape(1, 1, 1, 2), 4);
  const auto stage = ReducerOf("cam", R"({"merge": 2, "expectation": true})");
  const HeadPlan plan = ReduceWith(*stage, view, {9, 0, 9, 9}, {3})[0];
  EXPECT_THAT(Floats(plan.values.weight), ElementsAre(0));
}

TEST(CamTest, DrawsFollowTheSeedAndTheProbability) {
  const int64_t n = 2000;
  const ModelShape shape = SmallShape(1, 1, 1, 2);
  std::vector<float> scores(n);
  const auto draws = [&](uint64_t seed) {
    FakeView view(shape, n, 0, seed);
    // Every second entry goes, with a quarter of its neighbour's attention.
    for (int64_t j = 0; j < n; ++j) {
      view.step[j] = j % 2 == 0 ? 0.25f : 1.0f;
      scores[j] = static_cast<float>(j % 2);
    }
    const auto stage = ReducerOf("cam", R"({"merge": 1})");
    return Floats(ReduceWith(*stage, view, scores, {n / 2}, nullptr, 1)[0].values.weight);
  };
  const std::vector<float> first = draws(3);
  ASSERT_EQ(first.size(), 1000u);
  double taken = 0;
  for (const float w : first) {
    ASSERT_TRUE(w == 0 || w == 1);
    taken += w;
  }
  EXPECT_NEAR(taken / 1000, 0.25, 0.05);
  EXPECT_EQ(draws(3), first);
  EXPECT_NE(draws(4), first);
}

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
      ASSERT_GT(std::abs(likeness[h][i] - threshold), 1e-6);
      if (likeness[h][i] < threshold) continue;
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

TEST(TensorsTest, ComplementOfWhatIsKept) {
  FakeView view(SmallShape(), 6);
  EXPECT_THAT(Ints(Complement(view, View(std::vector<int32_t>{1, 2, 5}, {3}), 6)),
              ElementsAre(0, 3, 4));
  EXPECT_THAT(Ints(Complement(view, view.Scratch(DType::kI32, {0}), 2)), ElementsAre(0, 1));
  EXPECT_EQ(Complement(view, View(std::vector<int32_t>{0, 1}, {2}), 2).Numel(), 0);
}

TEST(Triggers, WhenTheyAct) {
  const auto once = MakeStage<Trigger>(StageKind::kTrigger, "prefill");
  EXPECT_TRUE(once->AfterPrefill());
  EXPECT_FALSE(once->AfterStep(3, 100));
  EXPECT_FALSE(once->in_decode());
  const auto every = MakeStage<Trigger>(StageKind::kTrigger, "every_step", R"({"slack": 2})");
  EXPECT_TRUE(every->AfterPrefill());
  EXPECT_FALSE(every->AfterStep(3, 2));
  EXPECT_TRUE(every->AfterStep(3, 3));
  EXPECT_TRUE(every->in_decode());
  EXPECT_FALSE(every->allotment_grows());
  const auto share =
      MakeStage<Trigger>(StageKind::kTrigger, "every_step", R"({"growth": "share"})");
  EXPECT_TRUE(share->allotment_grows());
}

}  // namespace
}  // namespace kvgauge
