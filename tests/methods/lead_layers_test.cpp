// SPDX-License-Identifier: Apache-2.0
// Readers that read by the choice of another layer, by a share of the attention, or by a few
// directions, against plain loops in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "chosen_entries.h"
#include "fake_view.h"
#include "methods/calibration.h"
#include "methods/method.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLeadDim = 8, kLeadTokens = 90, kLeadGroup = 2, kLeadHeads = 4;

FakeView LayerOfThree(int64_t layer, uint64_t seed) {
  FakeView view(SmallShape(3, 2, kLeadGroup, kLeadDim), kLeadTokens, layer);
  for (int64_t h = 0; h < 2; ++h) view.keys[h] = RandomValues(kLeadTokens * kLeadDim, seed + h);
  return view;
}

double ProductOf(const FakeView& view, const std::vector<float>& q, int64_t head, int64_t entry) {
  double dot = 0;
  for (int64_t c = 0; c < kLeadDim; ++c) {
    dot += double{q[head * kLeadDim + c]} * view.keys[head / kLeadGroup][entry * kLeadDim + c];
  }
  return dot;
}

// [entries] of a query head's softmax over the first `open`.
std::vector<double> GivenBy(const FakeView& view, const std::vector<float>& q, int64_t head,
                            int64_t open) {
  std::vector<double> given;
  for (int64_t e = 0; e < open; ++e) {
    given.push_back(std::exp(ProductOf(view, q, head, e) / std::sqrt(double{kLeadDim})));
  }
  const double sum = std::accumulate(given.begin(), given.end(), 0.0);
  for (double& x : given) x /= sum;
  return given;
}

std::vector<int64_t> BestOf(const std::vector<double>& scores, int64_t count) {
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  order.resize(static_cast<size_t>(count));
  std::sort(order.begin(), order.end());
  return order;
}

TEST(LeadLayersTest, LayersReadWhatTheOneBelowThemChose) {
  FakeView below = LayerOfThree(0, 60), lead = LayerOfThree(1, 70), led = LayerOfThree(2, 80);
  const auto reader =
      MakeStage<Reader>(StageKind::kRead, "lead_layers", R"({"layers": "1", "tokens": 12})");
  EXPECT_TRUE(reader->shares_choices());
  EXPECT_EQ(reader->LedBy(0), 0);
  EXPECT_EQ(reader->LedBy(1), 1);
  EXPECT_EQ(reader->LedBy(2), 1);
  const auto idle = reader->Begin(below), state = reader->Begin(lead);
  for (const uint64_t seed : {3, 4}) {  // a step after another
    const std::vector<float> q = RandomValues(kLeadHeads * kLeadDim, seed);
    EXPECT_FALSE(SelectWith(*reader, below, *idle, q).chosen);
    EXPECT_FALSE(SelectWith(*reader, lead, *state, q).chosen);
    // Whatever the query and the keys of the layer itself.
    const Reads reads = SelectWith(*reader, led, *state, RandomValues(kLeadHeads * kLeadDim, 9));
    EXPECT_TRUE(reads.chosen);
    for (int64_t head = 0; head < kLeadHeads; ++head) {
      std::vector<double> products;
      for (int64_t e = 0; e < kLeadTokens; ++e) products.push_back(ProductOf(lead, q, head, e));
      EXPECT_EQ(reads.Of(head), BestOf(products, 12)) << head;
    }
  }
  EXPECT_EQ(idle->bytes(), 0);
  EXPECT_GT(state->bytes(), 0);
}

TEST(LeadLayersTest, ALayerChoosesForAllOfItsHeads) {
  FakeView lead = LayerOfThree(1, 70), led = LayerOfThree(2, 80);
  const std::vector<float> q = RandomValues(kLeadHeads * kLeadDim, 3);
  const auto reader =
      MakeStage<Reader>(StageKind::kRead, "lead_layers",
                        R"({"layers": "1", "tokens": 12, "heads": "layer", "prompt_only": true})");
  const auto state = reader->Begin(lead);
  EXPECT_FALSE(SelectWith(*reader, lead, *state, q).chosen);
  std::vector<double> most(kLeadTokens, 0);
  for (int64_t head = 0; head < kLeadHeads; ++head) {
    const std::vector<double> given = GivenBy(lead, q, head, kLeadTokens);
    for (size_t e = 0; e < given.size(); ++e) most[e] = std::max(most[e], given[e]);
  }
  const Reads reads = SelectWith(*reader, led, *state, q);
  EXPECT_TRUE(reads.chosen);
  for (int64_t head = 0; head < kLeadHeads; ++head) EXPECT_EQ(reads.Of(head), BestOf(most, 12));
}

TEST(LeadLayersTest, WhatFitsIsReadWhole) {
  FakeView lead = LayerOfThree(1, 70), led = LayerOfThree(2, 80);
  const std::vector<float> q = RandomValues(kLeadHeads * kLeadDim, 3);
  const auto reader =
      MakeStage<Reader>(StageKind::kRead, "lead_layers", R"({"layers": "1", "tokens": 90})");
  const auto state = reader->Begin(lead);
  EXPECT_FALSE(SelectWith(*reader, lead, *state, q).chosen);
  EXPECT_FALSE(SelectWith(*reader, led, *state, q).chosen);
}

TEST(LeadLayersTest, SaysWhatIsWrong) {
  const ModelShape shape = SmallShape(3, 2, kLeadGroup, kLeadDim);
  const auto message = [&](const std::string& layers) {
    const auto reader = MakeStage<Reader>(StageKind::kRead, "lead_layers",
                                          StrCat(R"({"layers": ")", layers, "\"}"));
    const Status status = reader->Check(shape);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(message("0"), "");
  EXPECT_EQ(message("1,9"), "");  // the model has no layer 9
  for (const char* bad : {"", "x", "1,", ",1", "1;2", "2,1", "1,1", "-1", "99999999999999999999"}) {
    EXPECT_THAT(message(bad), HasSubstr("ascending")) << bad;
  }
  EXPECT_THAT(message("2"), HasSubstr("below the last layer"));
  EXPECT_THAT(message("9223372036854775807"), HasSubstr("below the last layer"));
  const Json json = {{"id", "both"},
                     {"title", "both"},
                     {"family", "retrieval"},
                     {"version", 1},
                     {"stages",
                      {{"score", {{"id", "knorm"}}},
                       {"reduce", {{"id", "top_k"}}},
                       {"read", {{"id", "lead_layers"}, {"layers", "0"}}}}}};
  const Result<Method> method = ParseMethod(json, "test");
  ASSERT_TRUE(method.ok()) << method.error().message;
  const Status status = CheckMethod(*method, shape, {Budget::Kind::kFraction, 0.5}, 100);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("reduce.top_k"));
  EXPECT_THAT(status.error().message, HasSubstr("leave out one of the two"));
}

TEST(TopPTest, ReadsTheFewestThatReachTheShare) {
  FakeView view = LayerOfThree(2, 70);
  view.SetLength(1, 61);
  const std::vector<float> q = RandomValues(kLeadHeads * kLeadDim, 5);
  for (const double share : {0.05, 0.5, 0.9}) {
    const auto reader =
        MakeStage<Reader>(StageKind::kRead, "top_p", StrCat(R"({"share": )", share, "}"));
    const auto state = reader->Begin(view);
    const Reads reads = SelectWith(*reader, view, *state, q);
    EXPECT_TRUE(reads.chosen);
    for (int64_t head = 0; head < kLeadHeads; ++head) {
      const std::vector<double> given =
          GivenBy(view, q, head, view.lengths()[static_cast<size_t>(head / kLeadGroup)]);
      std::vector<double> sorted = given;
      std::sort(sorted.rbegin(), sorted.rend());
      int64_t count = 0;
      for (double sum = 0; sum < share; ++count) sum += sorted[static_cast<size_t>(count)];
      EXPECT_EQ(reads.Of(head), BestOf(given, count)) << share << " " << head;
    }
  }
}

TEST(TopPTest, DenseLayersAndTheWholeShareReadEverything) {
  FakeView view = LayerOfThree(1, 70), last = LayerOfThree(2, 70);
  const std::vector<float> q = RandomValues(kLeadHeads * kLeadDim, 5);
  const auto reader = MakeStage<Reader>(StageKind::kRead, "top_p", R"({"share": 0.5})");
  EXPECT_FALSE(SelectWith(*reader, view, *reader->Begin(view), q).chosen);
  const auto all = MakeStage<Reader>(StageKind::kRead, "top_p", R"({"share": 1})");
  EXPECT_FALSE(SelectWith(*all, last, *all->Begin(last), q).chosen);
}

// With as many directions as dims, products are the exact ones, whatever the directions.
TEST(SubspaceTest, AllDirectionsAreTopK) {
  for (const char* directions : {"principal", "channels"}) {
    FakeView view = LayerOfThree(0, 70);
    view.SetLength(1, 61);
    const std::vector<float> q = RandomValues(kLeadHeads * kLeadDim, 5);
    const auto reader = MakeStage<Reader>(
        StageKind::kRead, "subspace",
        StrCat(R"({"rank": 64, "tokens": 20, "directions": ")", directions, "\"}"));
    const auto state = reader->Begin(view);
    const Reads reads = SelectWith(*reader, view, *state, q);
    EXPECT_TRUE(reads.chosen);
    for (int64_t head = 0; head < kLeadHeads; ++head) {
      std::vector<double> products;
      for (int64_t e = 0; e < view.lengths()[static_cast<size_t>(head / kLeadGroup)]; ++e) {
        products.push_back(ProductOf(view, q, head, e));
      }
      EXPECT_EQ(reads.Of(head), BestOf(products, 20)) << directions << head;
    }
  }
}

// Keys that differ in one dim alone, which both kinds of directions find; the others are noise that
// a product over all dims would follow.
TEST(SubspaceTest, OneDirectionIsTheLoudestDim) {
  for (const char* directions : {"principal", "channels"}) {
    FakeView view(SmallShape(1, 1, 1, 4), 6);
    view.keys[0].assign(24, 0.0f);
    const float loud[] = {5, -6, 1, 9, -8, 2};
    for (size_t e = 0; e < 6; ++e) {
      view.keys[0][4 * e + 2] = loud[e];
      view.keys[0][4 * e] = e == 2 ? 0.5f : 0.0f;
    }
    const auto reader =
        MakeStage<Reader>(StageKind::kRead, "subspace",
                          StrCat(R"({"rank": 1, "tokens": 2, "directions": ")", directions, "\"}"));
    const auto state = reader->Begin(view);
    // By all dims entry 2 would be the best.
    const Reads reads = SelectWith(*reader, view, *state, {1000, 0, 1, 0});
    EXPECT_TRUE(reads.chosen);
    EXPECT_THAT(reads.Of(0), ::testing::ElementsAre(0, 3)) << directions;
  }
}

// What texts teach is what a prompt of the same keys teaches by itself.
TEST(SubspaceTest, CalibratedDirectionsAreThoseOfTheTexts) {
  for (const char* directions : {"principal", "channels"}) {
    const StageSpec* spec = *FindStage(StageKind::kRead, "subspace");
    FakeView view = LayerOfThree(0, 70);
    const Result<Params> params =
        Params::Parse(spec->params, {{"directions", directions}, {"rank", 3}}, "test");
    ASSERT_TRUE(params.ok());
    const ModelShape shape = SmallShape(1, 2, kLeadGroup, kLeadDim);
    const auto calibrator = spec->calibrate(*params, shape, {});
    calibrator->Observe(0, view);
    auto calibration = std::make_shared<Calibration>();
    calibration->tables = calibrator->Finish(view.ops());
    const std::string json = StrCat(R"({"rank": 3, "tokens": 20, "directions": ")", directions,
                                    R"(", "calibration": "side-file"})");
    const auto learned = MakeStage<Reader>(StageKind::kRead, "subspace", json);
    learned->Use(calibration);
    ASSERT_TRUE(learned->Check(shape).ok());
    const auto own = MakeStage<Reader>(
        StageKind::kRead, "subspace",
        StrCat(R"({"rank": 3, "tokens": 20, "directions": ")", directions, "\"}"));
    const std::vector<float> q = RandomValues(kLeadHeads * kLeadDim, 5);
    const Reads by_texts = SelectWith(*learned, view, *learned->Begin(view), q);
    const Reads by_prompt = SelectWith(*own, view, *own->Begin(view), q);
    EXPECT_EQ(by_texts.words, by_prompt.words) << directions;
  }
}

}  // namespace
}  // namespace kvgauge
