// SPDX-License-Identifier: Apache-2.0
// Which entries go to which tier, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "fake_view.h"
#include "methods/coverage.h"
#include "methods/layouts/classes.h"
#include "methods/method.h"
#include "methods/tensors.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> ClassesOf(const std::string& params, FakeView& view,
                               const std::vector<float>& scores, int64_t classed = 0) {
  const auto stage = MakeStage<Store>(StageKind::kStore, "tiers", params);
  const int64_t heads = view.shape().kv_heads, width = view.width();
  const std::vector<int32_t> none(static_cast<size_t>(heads * width), -1);
  const Tensor classes = view.Scratch(DType::kI32, {heads, width});
  view.ops().memory->Copy(View(none, {heads, width}), classes);
  const std::vector<int64_t> first(static_cast<size_t>(heads), classed);
  const Tensor given = scores.empty() ? Tensor() : View(scores, {heads, width});
  stage->Classify(view, {.scores = given, .classed = first}, classes);
  return Ints(classes);
}

TEST(TiersTest, SharesAreOfTheEntriesAndEqualScoresGoByPlace) {
  FakeView view(SmallShape(1, 1), 10);
  const std::vector<float> scores = {5, 1, 1, 1, kInf, 2, 2, 0, 0, 3};
  // 0.6 of ten: not one more, though 0.4 * 10 is not 4 in floats everywhere.
  EXPECT_THAT(ClassesOf(R"({"first": 0.6})", view, scores),
              ElementsAre(0, 0, 1, 1, 0, 0, 0, 1, 1, 0));
  EXPECT_THAT(ClassesOf(R"({"first": 0.2, "second": 0.5})", view, scores),
              ElementsAre(0, 2, 2, 2, 0, 1, 1, 2, 2, 1));
  EXPECT_THAT(ClassesOf(R"({"first": 0, "second": 0.1})", view, scores),
              ElementsAre(2, 2, 2, 2, 1, 2, 2, 2, 2, 2));
  EXPECT_THAT(ClassesOf(R"({"by": "count", "first": 3})", view, scores),
              ElementsAre(0, 1, 1, 1, 0, 1, 1, 1, 1, 0));
}

TEST(TiersTest, CoverageTakesTheFewestThatHoldTheShare) {
  FakeView view(SmallShape(1, 1), 6);
  const std::vector<float> scores = {4, 1, 3, kInf, 1, 1};
  const auto count = [&](double share) { return CoveringCount(view, View(scores, {1, 6}), share); };
  EXPECT_EQ(count(0), 1);
  EXPECT_EQ(count(0.4), 2);
  EXPECT_EQ(count(0.41), 3);
  EXPECT_EQ(count(0.8), 4);
  EXPECT_EQ(count(1), 6);
  const std::vector<float> nothing(6);
  EXPECT_EQ(CoveringCount(view, View(nothing, {1, 6}), 0.5), 0);
  EXPECT_THAT(ClassesOf(R"({"by": "coverage", "first": 0.4, "second": 0.7})", view, scores),
              ElementsAre(0, 2, 1, 0, 2, 2));
  const auto reduce = MakeStage<Reducer>(StageKind::kReduce, "coverage", R"({"mass": 0.7})");
  EXPECT_THAT(Ints(ReduceWith(*reduce, view, scores, {6})[0].keep), ElementsAre(0, 2, 3));
}

// Sums over rows are counted, means say which entries these are.
TEST(TiersTest, AShareOfALayerIsThatOfAllHeads) {
  FakeView view(SmallShape(1, 2, 2), 4);
  const std::vector<float> scores = {2, 0, 0, 4, 0, 2, 0, 4};
  // Mean 1 1 0 4, rows that see them 4 3 2 1: sums 4 3 0 4.
  EXPECT_THAT(ClassesOf(R"({"by": "layer", "first": 0.7})", view, scores),
              ElementsAre(0, 1, 1, 0, 0, 1, 1, 0));
  EXPECT_THAT(ClassesOf(R"({"by": "layer", "first": 0.75})", view, scores),
              ElementsAre(0, 0, 1, 0, 0, 0, 1, 0));
  // Where entries have left a head each has its own: 8 0 0 4 are the sums of the first.
  view.SetLength(1, 3);
  EXPECT_THAT(ClassesOf(R"({"by": "layer", "first": 0.6})", view, scores),
              ElementsAre(1, 1, 1, 0, 1, 0, 1, -1));
}

TEST(TiersTest, LimitsMayCountEvenShares) {
  FakeView view(SmallShape(1, 1), 5);
  const std::vector<float> scores = {0.2f, 0.19f, kInf, 0.05f, 0.3f};
  EXPECT_THAT(ClassesOf(R"({"by": "even", "first": 1, "second": 0.5})", view, scores),
              ElementsAre(0, 1, 0, 2, 0));
  EXPECT_THAT(ClassesOf(R"({"by": "even", "first": 1.4})", view, scores),
              ElementsAre(1, 1, 0, 1, 0));
}

// What no row of the prompt attended to has exactly 0; new entries are ranked by a share.
TEST(TiersTest, TheFirstMayBeWhatAnyRowAttendedTo) {
  FakeView view(SmallShape(1, 2), 4);
  const std::vector<float> scores = {0.5f, 0, 1e-30f, 0.1f, 0.5f, 0, 0.2f, 0.9f};
  const std::string params = R"({"by": "layer", "first": 0.5, "seen": true})";
  EXPECT_THAT(ClassesOf(params, view, scores), ElementsAre(0, 1, 0, 0, 0, 1, 0, 0));
  EXPECT_THAT(ClassesOf(params, view, scores, 2), ElementsAre(-1, -1, 1, 0, -1, -1, 1, 0));
}

// Text of the first layers, and later the entries that all heads look at most.
TEST(AkvqTest, TextAndPivotsHaveMoreBits) {
  const std::vector<int64_t> none = {0, 0};
  const auto classes = [&](int64_t layer, const std::vector<float>& scores,
                           const std::vector<int64_t>& classed) {
    FakeView view(SmallShape(2, 2, 2), 6, layer);
    VisualSpan picture;
    picture.first = 1;
    picture.count = 3;
    picture.grid = {1, 1, 3};
    view.spans = {picture};
    const auto store = MakeStage<Store>(
        StageKind::kStore, "akvq", R"({"text_layers": 1, "pivots": 2, "recent": 1, "wait": 2})");
    const Tensor out = view.Scratch(DType::kI32, {2, 6});
    for (int64_t i = 0; i < 12; ++i) out.i32()[i] = -1;
    const Tensor given = scores.empty() ? Tensor() : View(scores, {2, 6});
    store->Classify(view, {.scores = given, .classed = classed}, out);
    return Ints(out);
  };
  const std::vector<float> scores = {1, 5, 0, 0, 0, 9, 3, 0, 0, 1, 0, 9};
  EXPECT_THAT(classes(0, scores, none), ElementsAre(0, 1, 1, 1, 0, -1, 0, 1, 1, 1, 0, -1));
  // Means 2 2.5 0 .5 0 9: a pivot among the newest is one at once.
  EXPECT_THAT(classes(1, scores, none), ElementsAre(1, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1, 0));
  EXPECT_THAT(classes(1, {}, {3, 3}), ElementsAre(-1, -1, -1, 1, 1, -1, -1, -1, -1, 1, 1, -1));
}

TEST(TiersTest, NewEntriesAreRankedAmongThemselvesOrWithAll) {
  FakeView view(SmallShape(1, 1), 10);
  const std::vector<float> scores = {9, 9, 9, 9, 9, 9, 1, 2, 3, 4};
  EXPECT_THAT(ClassesOf(R"({"first": 0.5, "recent": 1})", view, scores, 6),
              ElementsAre(-1, -1, -1, -1, -1, -1, 1, 0, 0, -1));
  EXPECT_THAT(ClassesOf(R"({"first": 0.5, "recent": 1, "later": "all"})", view, scores, 6),
              ElementsAre(0, 0, 0, 0, 0, 1, 1, 1, 1, -1));
  // A number of entries is one of the prompt's.
  EXPECT_THAT(ClassesOf(R"({"by": "count", "first": 2})", view, scores, 8),
              ElementsAre(-1, -1, -1, -1, -1, -1, -1, -1, 1, 1));
  // Without scores new entries are taken to matter.
  EXPECT_THAT(ClassesOf(R"({"first": 0.5, "later": "all"})", view, {}, 8),
              ElementsAre(-1, -1, -1, -1, -1, -1, -1, -1, 0, 0));
}

TEST(ProgressiveTest, AllEntriesFallTogether) {
  const auto classes_at = [](int64_t length) {
    FakeView view(SmallShape(1, 1), length);
    const auto stage =
        MakeStage<Store>(StageKind::kStore, "progressive", R"({"capacity": 2, "sinks": 1})");
    const std::vector<int32_t> none(static_cast<size_t>(length), -1);
    const Tensor classes = view.Scratch(DType::kI32, {1, length});
    view.ops().memory->Copy(View(none, {1, length}), classes);
    const std::vector<int64_t> classed = {0};
    stage->Classify(view, {.scores = {}, .classed = classed}, classes);
    return Ints(classes);
  };
  EXPECT_THAT(classes_at(2), ElementsAre(0, 0));
  EXPECT_THAT(classes_at(3), ElementsAre(0, 1, 1));
  EXPECT_THAT(classes_at(4), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(classes_at(5), ElementsAre(0, 2, 2, 2, 2));
  EXPECT_THAT(classes_at(9), ElementsAre(0, 3, 3, 3, 3, 3, 3, 3, 3));
}

TEST(TiersTest, ScalesOfChannelsAreThoseOfThePapers) {
  FakeView view(SmallShape(1, 1), 5);
  view.Randomize(7);
  const auto stage = MakeStage<Store>(StageKind::kStore, "tiers",
                                      R"({"balance": true, "even_values": true, "window": 3})");
  Result<StorePlan> plan = stage->Plan(view.shape(), 0);
  ASSERT_TRUE(plan.ok());
  stage->Calibrate(view, *plan);
  const auto* layout = plan->Get<Classes>();
  const int64_t dim = view.shape().key_dim;
  const std::vector<float> keys = Floats(layout->key_scales), values = Floats(layout->value_scales);
  for (int64_t c = 0; c < dim; ++c) {
    double key = 0, value = 0, query = 0;
    for (int64_t i = 0; i < 5; ++i) {
      key = std::max(key, std::abs(double{view.keys[0][i * dim + c]}));
      value = std::max(value, std::abs(double{view.values[0][i * view.shape().value_dim + c]}));
      if (i >= 2) query = std::max(query, std::abs(double{view.queries[i * dim + c]}));
    }
    EXPECT_NEAR(keys[c], std::sqrt(key / query), 1e-6);
    EXPECT_NEAR(values[c], std::sqrt(value), 1e-6);
  }
}

TEST(TiersTest, WhatDoesNotFitIsRefused) {
  const auto refusal = [](const std::string& stages) {
    const Json json = {{"id", "test"},
                       {"title", "test"},
                       {"family", "quantization"},
                       {"version", 1},
                       {"stages", *ParseJson(stages, "test")}};
    const Result<Method> method = ParseMethod(json, "test");
    if (!method.ok()) return method.error().message;
    const Status status = CheckMethod(*method, SmallShape(2, 2), *Budget::Parse("none"), 100);
    return status.ok() ? std::string() : status.error().message;
  };
  const std::string all = R"("score": {"id": "h2o"}, "reduce": {"id": "keep_all"}, )";
  EXPECT_EQ(refusal("{" + all + R"("store": {"id": "tiers"}})"), "");
  EXPECT_THAT(
      refusal(R"({"store": {"id": "tiers"}})"),
      HasSubstr("store.tiers puts entries into classes by their scores, and there are none"));
  EXPECT_THAT(refusal("{" + all + R"("store": {"id": "affine"}})"),
              HasSubstr("reduce.keep_all keeps everything and store.affine reads no scores"));
  EXPECT_THAT(refusal("{" + all + R"("store": {"id": "tiers", "first": 2}})"),
              HasSubstr("a share is at most 1"));
  EXPECT_THAT(refusal("{" + all + R"("store": {"id": "tiers", "first": 0.5, "second": 0.4}})"),
              HasSubstr("second 0.4 is below first 0.5"));
  EXPECT_THAT(refusal("{" + all + R"("store": {"id": "tiers", "by": "even", "second": 2}})"),
              HasSubstr("second 2 is above first 0.5"));
  EXPECT_THAT(refusal("{" + all + R"("store": {"id": "tiers", "seen": true}})"),
              HasSubstr("seen: needs by=layer, two tiers and later=new; by is share"));
  EXPECT_THAT(refusal("{" + all + R"("store": {"id": "tiers", "last_key_bits": 5}})"),
              HasSubstr("bits"));
  EXPECT_THAT(refusal(R"({"score": {"id": "tova"}, "reduce": {"id": "threshold"},
                          "trigger": {"id": "every_step"}, "store": {"id": "tiers"}})"),
              HasSubstr("can no longer see the newest attention"));
  EXPECT_THAT(refusal(R"({"store": {"id": "qaq", "least": 4, "most": 2}})"),
              HasSubstr("least 4 is more bits than most 2"));
}

}  // namespace
}  // namespace kvgauge
