// SPDX-License-Identifier: Apache-2.0
// Scores of trained gates, and the threshold that goes with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fake_view.h"
#include "methods/calibration.h"
#include "methods/gate.h"
#include "methods/method.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelShape Shape() { return SmallShape(2, 2, 1, 4); }  // rows of 8 numbers

std::shared_ptr<Calibration> Linear(int64_t layers, int64_t heads) {
  auto file = std::make_shared<Calibration>();
  file->path = "gate.safetensors";
  file->digest = "0123";
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<float> weight(static_cast<size_t>(heads * 8));
    for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i + layer);
    file->tables[StrCat("layers.", layer, ".weight")] = {{heads, 8}, weight};
    file->tables[StrCat("layers.", layer, ".bias")] = {{heads}, std::vector<float>(heads, -100.0f)};
  }
  return file;
}

TEST(GateTest, OneMapOfTheLayersInput) {
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "kvzap", R"({"kind": "linear"})");
  scorer->Use(Linear(2, 2));
  ASSERT_TRUE(scorer->Check(Shape()).ok());
  const Needs needs = scorer->needs();
  ASSERT_EQ(needs.gates.size(), 1u);
  FakeView view(Shape(), 3);
  const std::unique_ptr<LoadedGate> gate = needs.gates[0].gate->Load(Shape(), view.ops());
  EXPECT_EQ(gate->bytes(), needs.gates[0].gate->PlannedBytes(Shape()));
  EXPECT_EQ(gate->bytes(), 2 * (16 + 2) * 4);
  const std::vector<float> x = {1, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0};
  const Tensor out = view.Scratch(DType::kF32, {2, 2});
  gate->Fold(0, View(x, {2, 8}), out);
  EXPECT_THAT(Floats(out), ElementsAre(-86, -62, -99, -91));
  gate->Fold(1, View(x, {2, 8}), out);
  EXPECT_THAT(Floats(out), ElementsAre(-83, -59, -98, -90));
}

TEST(GateTest, EntriesKeepWhatTheyWereGiven) {
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "kvzap", R"({"weights": "random"})");
  FakeView view(Shape(), 3);
  view.gate_scores = {1, 2, 3, 4, 5, 6};
  std::vector<float> scores = ScoreWith(*scorer, view);
  EXPECT_THAT(scores, ElementsAre(1, 2, 3, 4, 5, 6));
  view.is_decoding = true;
  view.gate_scores = {7, 8};
  scores = {1, 2, 0, 4, 5, 0};
  scorer->Age(view, View(scores, {2, 3}));
  EXPECT_THAT(scores, ElementsAre(1, 2, 7, 4, 5, 8));
}

// A gate that nearly always retains leaves the log of a sigmoid near 1, which must keep its digits.
TEST(GateTest, RetentionIsTheLogOfASigmoid) {
  const auto scorer =
      MakeStage<Scorer>(StageKind::kScore, "trimkv", R"({"inner": 1, "calibration": "f"})");
  auto file = std::make_shared<Calibration>();
  const std::vector<float> shifts = {14, -3, 0.25f, 90};
  for (int64_t layer = 0; layer < 2; ++layer) {
    const std::string begin = StrCat("layers.", layer, ".");
    file->tables[begin + "0.weight"] = {{1, 8}, std::vector<float>(8)};
    file->tables[begin + "0.bias"] = {{1}, {0}};
    file->tables[begin + "2.weight"] = {{2, 1}, {0, 0}};
    file->tables[begin + "2.bias"] = {{2},
                                      {shifts.begin() + 2 * layer, shifts.begin() + 2 * layer + 2}};
  }
  scorer->Use(file);
  ASSERT_TRUE(scorer->Check(Shape()).ok());
  FakeView view(Shape(), 3);
  const std::unique_ptr<LoadedGate> gate = scorer->needs().gates[0].gate->Load(Shape(), view.ops());
  const std::vector<float> x(16, 1.0f);
  for (int64_t layer = 0; layer < 2; ++layer) {
    const Tensor out = view.Scratch(DType::kF32, {2, 2});
    gate->Fold(layer, View(x, {2, 8}), out);
    for (size_t i = 0; i < 4; ++i) {
      const double gave = shifts[static_cast<size_t>(2 * layer) + i % 2];
      const double want = std::min(gave, 0.0) - std::log1p(std::exp(-std::abs(gave)));
      EXPECT_NEAR(Floats(out)[i], want, 2e-6 * std::abs(want)) << gave;
    }
  }
}

// An entry's score is what its gate gave it, times its age, whenever it is asked for.
TEST(GateTest, RetentionDecaysWithAge) {
  const auto scorer =
      MakeStage<Scorer>(StageKind::kScore, "trimkv", R"({"weights": "random", "inner": 1})");
  FakeView view(Shape(), 3);
  view.gate_scores = {-1, -2, -3, -4, -5, -6};
  EXPECT_THAT(ScoreWith(*scorer, view), ElementsAre(-4, -6, -6, -16, -15, -12));
  EXPECT_EQ(scorer->numbers(), 2);
}

// A token goes from the predictor's layer on, and only in decode; equal numbers are against it.
TEST(GateTest, DecodedTokensAreJudgedWhereTheyEnterALayer) {
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "dynamic_llava",
                                        R"({"weights": "random", "layer": 1, "width": 4})");
  ASSERT_TRUE(scorer->Check(Shape()).ok());
  const Needs needs = scorer->needs();
  EXPECT_TRUE(needs.gates.empty());
  ASSERT_EQ(needs.step_gates.size(), 1u);
  EXPECT_EQ(needs.step_gates[0].gate->rows_of(), 1);
  for (const int64_t layer : {0, 1}) {
    FakeView view(Shape(), 3, layer);
    view.SetLength(1, 2);
    view.gate_scores = {0.0f, 1e-9f};
    EXPECT_THAT(ScoreWith(*scorer, view), ElementsAre(1, 1, 1, 1, 1, 0)) << "behind a prompt";
    view.is_decoding = true;
    const float first = layer == 0 ? 1 : 0;
    EXPECT_THAT(ScoreWith(*scorer, view), ElementsAre(1, 1, first, 1, 1, 0)) << layer;
  }
  const auto deep =
      MakeStage<Scorer>(StageKind::kScore, "dynamic_llava", R"({"weights": "random", "width": 4})");
  const Status refused = deep->Check(Shape());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "layer is 2, and the model has 2 layers; expected 0 .. 1");
}

TEST(GateTest, WeightsOfAnotherModelAreRefused) {
  const auto error = [](const std::string& params, std::shared_ptr<Calibration> file) {
    const auto scorer = MakeStage<Scorer>(StageKind::kScore, "kvzap", params);
    if (file != nullptr) scorer->Use(std::move(file));
    const Status status = scorer->Check(Shape());
    return status.ok() ? "" : status.error().message;
  };
  const std::string linear = R"({"kind": "linear"})";
  EXPECT_EQ(error(linear, Linear(2, 2)), "");
  EXPECT_THAT(error(linear, nullptr), HasSubstr("weights=random"));
  EXPECT_THAT(error(linear, Linear(1, 2)), HasSubstr("has no table 'layers.1.bias'"));
  EXPECT_THAT(error(linear, Linear(3, 2)),
              HasSubstr("'layers.2.bias', of which this model needs none"));
  EXPECT_THAT(error(linear, Linear(2, 4)), HasSubstr("has shape [4]"));
  EXPECT_THAT(error("{}", Linear(2, 2)), HasSubstr("has no table 'layers.0.0.bias'"));
  EXPECT_THAT(error(R"({"weights": "random"})", Linear(2, 2)), HasSubstr("leave out one"));
}

TEST(ThresholdTest, KeepsWhatReachesIt) {
  FakeView view(SmallShape(1, 2), 5);
  view.SetLength(1, 3);
  const auto reducer = MakeStage<Reducer>(StageKind::kReduce, "threshold", R"({"least": -1})");
  EXPECT_FALSE(reducer->takes_budget());
  constexpr float kKept = std::numeric_limits<float>::infinity();
  const std::vector<float> scores = {-1, -2, 0, -1.5f, kKept, -3, -2, -1, 9, 9};
  const int64_t allocated[] = {5, 3};
  const std::vector<HeadPlan> plan =
      reducer->Reduce(view, {.scores = View(scores, {2, 5}), .allocated = allocated}, nullptr);
  EXPECT_THAT(Ints(plan[0].keep), ElementsAre(0, 2, 4));
  EXPECT_THAT(Ints(plan[1].keep), ElementsAre(2));
}

TEST(ThresholdTest, MayCountEvenShares) {
  FakeView view(SmallShape(), 5);
  const auto reducer =
      MakeStage<Reducer>(StageKind::kReduce, "threshold", R"({"least": 0.5, "even": true})");
  const std::vector<float> scores = {0.1f, 0.09f, 0.3f, 0, 0.11f};
  const int64_t allocated[] = {5};
  const std::vector<HeadPlan> plan =
      reducer->Reduce(view, {.scores = View(scores, {1, 5}), .allocated = allocated}, nullptr);
  EXPECT_THAT(Ints(plan[0].keep), ElementsAre(0, 2, 4));
}

TEST(ThresholdTest, TakesNoBudget) {
  const std::string directory = StrCat(KVG_SOURCE_DIR, "/configs/methods");
  const Result<Method> dms = LoadMethod("dms", directory, {"score.weights=random"});
  ASSERT_TRUE(dms.ok()) << dms.error().message;
  EXPECT_FALSE(dms->takes_budget);
  EXPECT_EQ(HeadBudgetFor(*dms, Shape(), {}, 500).recent, 128);
  EXPECT_EQ(HeadBudgetFor(*dms, Shape(), {}, 100).recent, 100) << "no more than the prompt";
  const Status given = CheckMethod(*dms, Shape(), {Budget::Kind::kFraction, 0.2}, 500);
  ASSERT_FALSE(given.ok());
  EXPECT_THAT(given.error().message, HasSubstr("its size follows from reduce.threshold"));
  const Result<Method> shared =
      LoadMethod("dms", directory, {"score.weights=random", "allocate.id=ada"});
  ASSERT_FALSE(shared.ok());
  EXPECT_THAT(shared.error().message, HasSubstr("allocate.ada has no effect"));
}

}  // namespace
}  // namespace kvgauge
