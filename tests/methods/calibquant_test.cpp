// SPDX-License-Identifier: Apache-2.0
// Rows of pictures as levels of their channels, and scores that are lowered.
#include <gmock/gmock.h>

#include "methods/joining_reader.h"
#include "methods/layouts/classes.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int64_t kShownEntries = 10, kShownDims = 4;

// Two heads of ten entries: text, text, six rows of a picture, text, text.
FakeView ShownView(uint64_t seed = 1) {
  FakeView view(SmallShape(1, 2, 2, kShownDims), kShownEntries, 0, seed);
  view.Randomize(seed);
  VisualSpan picture;
  picture.first = 2;
  picture.count = 6;
  picture.grid = {1, 2, 3};
  view.spans = {picture};
  return view;
}

std::vector<int32_t> ClassesWith(const Store& store, FakeView& view,
                                 const std::vector<int64_t>& classed) {
  const Tensor classes = view.Scratch(DType::kI32, {2, kShownEntries});
  for (int64_t i = 0; i < 2 * kShownEntries; ++i) classes.i32()[i] = -1;
  store.Classify(view, {.scores = {}, .classed = classed}, classes);
  return Ints(classes);
}

TEST(CalibQuantTest, PicturesAreCodedAndTextIsNot) {
  FakeView view = ShownView();
  const auto store = MakeStage<Store>(StageKind::kStore, "calibquant", "{}");
  EXPECT_THAT(ClassesWith(*store, view, {0, 8}),
              ElementsAre(1, 1, 0, 0, 0, 0, 0, 0, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 1));
  view.spans[0].first = 0;
  view.spans[0].count = kShownEntries;
  EXPECT_THAT(ClassesWith(*store, view, {0, 0}), Each(0));
  view.spans.clear();
  EXPECT_THAT(ClassesWith(*store, view, {0, 0}), Each(1));
}

// Even steps between the shrunk ends of what the rows of pictures hold in a channel.
TEST(CalibQuantTest, LevelsAreThoseOfTheReference) {
  for (const int64_t bits : {1, 2}) {
    FakeView view = ShownView(7);
    const auto store =
        MakeStage<Store>(StageKind::kStore, "calibquant",
                         StrCat(R"({"key_share": 0.5, "value_share": 0.3, "bits": )", bits, "}"));
    Result<StorePlan> plan = store->Plan(view.shape(), 0);
    ASSERT_TRUE(plan.ok());
    store->Calibrate(view, *plan);
    const Classes::Class& shown = plan->Get<Classes>()->classes[0];
    EXPECT_FALSE(plan->Get<Classes>()->classes[1].keys.coded());
    const int64_t count = int64_t{1} << bits;
    for (const bool keys : {true, false}) {
      const std::vector<float> table = Floats(keys ? shown.key_table : shown.value_table);
      ASSERT_EQ(std::ssize(table), 2 * kShownDims * count);
      for (int64_t h = 0; h < 2; ++h) {
        const std::vector<float>& rows = keys ? view.keys[h] : view.values[h];
        for (int64_t d = 0; d < kShownDims; ++d) {
          double low = 1e9, high = -1e9;
          for (int64_t i = 2; i < 8; ++i) {
            low = std::min(low, double{rows[i * kShownDims + d]});
            high = std::max(high, double{rows[i * kShownDims + d]});
          }
          for (int64_t level = 0; level < count; ++level) {
            const double want = (keys ? 0.5 : 0.3) * (low + (high - low) * level / (count - 1));
            EXPECT_NEAR(table[(h * kShownDims + d) * count + level], want, 1e-6);
          }
        }
      }
    }
  }
}

// The scores of pictures from the least to the largest, the largest lower by three.
TEST(CalibQuantTest, ScoresOfPicturesAreMapped) {
  FakeView view = ShownView(3);
  const auto reader = MakeStage<Reader>(StageKind::kRead, "calibquant", "{}");
  const auto& joining = dynamic_cast<const JoiningReader&>(*reader);
  const auto state = reader->Begin(view);
  const std::vector<float> q = RandomValues(4 * kShownDims, 5, 3.0f);
  const Reads reads = SelectWith(*reader, view, *state, q);
  ASSERT_TRUE(reads.chosen);
  std::vector<int64_t> joined(4);
  joining.MarkJoined(view, *state, Tensor(joined.data(), DType::kI64, {4, 1}));
  std::vector<float> out, sums, want;
  for (int64_t head = 0; head < 4; ++head) {
    EXPECT_THAT(reads.Of(head), ElementsAre(0, 1, 8, 9));
    EXPECT_EQ(joined[static_cast<size_t>(head)], 0b11111100);
    std::vector<double> scores(kShownEntries);
    for (int64_t i = 0; i < kShownEntries; ++i) {
      for (int64_t d = 0; d < kShownDims; ++d) {
        scores[i] += double{q[head * kShownDims + d]} * view.keys[head / 2][i * kShownDims + d];
      }
      scores[i] *= view.shape().attention_scale;
    }
    const auto [least, most] = std::minmax_element(scores.begin() + 2, scores.begin() + 8);
    const double low = *least, high = *most;
    const auto answer = [&](bool all) {
      double total = 0;
      std::vector<double> sum(kShownDims);
      for (int64_t i = 0; i < kShownEntries; ++i) {
        const bool shown = i >= 2 && i < 8;
        if (shown && !all) continue;
        const double score =
            shown ? low + (scores[i] - low) / (high - low + 1e-8) * (high - 3 - low) : scores[i];
        total += std::exp(score);
        for (int64_t d = 0; d < kShownDims; ++d) {
          sum[d] += std::exp(score) * view.values[head / 2][i * kShownDims + d];
        }
      }
      for (double& x : sum) x /= total;
      if (!all) sums.push_back(static_cast<float>(std::log(total)));
      return sum;
    };
    for (const double x : answer(false)) out.push_back(static_cast<float>(x));
    for (const double x : answer(true)) want.push_back(static_cast<float>(x));
  }
  EXPECT_FALSE(AllWithin(out, want, 1e-3));
  joining.Join(view, *state, View(q, {4, kShownDims}), View(sums, {4}), View(out, {4, kShownDims}));
  EXPECT_TRUE(AllWithin(out, want, 1e-5));
}

TEST(CalibQuantTest, TextAloneIsReadAsItIs) {
  FakeView view = ShownView();
  view.spans.clear();
  const auto reader = MakeStage<Reader>(StageKind::kRead, "calibquant", "{}");
  const auto state = reader->Begin(view);
  EXPECT_FALSE(SelectWith(*reader, view, *state, RandomValues(4 * kShownDims, 5)).chosen);
  EXPECT_EQ(state->bytes(), 0);
  const auto store = MakeStage<Store>(StageKind::kStore, "calibquant", "{}");
  Result<StorePlan> plan = store->Plan(view.shape(), 0);
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->layout->traits().exact);
  store->Calibrate(view, *plan);
  EXPECT_TRUE(plan->layout->traits().exact) << "no levels are kept where nothing is coded";
}

// Rows that a sliding window hides have no part in the range, and none in the answer.
TEST(CalibQuantTest, HiddenRowsOfPicturesAreLeftOut) {
  ModelShape shape = SmallShape(1, 1, 1, kShownDims);
  shape.windows = {2};
  FakeView view(shape, kShownEntries);
  view.Randomize(4);
  VisualSpan picture;
  picture.first = 2;
  picture.count = 6;
  view.spans = {picture};
  const auto reader = MakeStage<Reader>(StageKind::kRead, "calibquant", "{}");
  const auto state = reader->Begin(view);
  const std::vector<float> q = RandomValues(kShownDims, 5);
  ASSERT_TRUE(SelectWith(*reader, view, *state, q).chosen);
  const std::vector<float> before = {1, 2, 3, 4}, sums = {0.5f};
  std::vector<float> out = before;
  dynamic_cast<const JoiningReader&>(*reader).Join(view, *state, View(q, {1, kShownDims}),
                                                   View(sums, {1}), View(out, {1, kShownDims}));
  EXPECT_TRUE(AllWithin(out, before, 1e-6));
}

}  // namespace
}  // namespace kvgauge
