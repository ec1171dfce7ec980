// SPDX-License-Identifier: Apache-2.0
// Stages that keep entries in other bases, or without channels: what they learn, import, plan and
// refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/strings.h"
#include "fake_view.h"
#include "fake_weights.h"
#include "methods/calibration.h"
#include "methods/layouts/narrow_keys.h"
#include "methods/layouts/transformed.h"
#include "methods/registry.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Calibrator> CalibratorOf(StageKind kind, const std::string& id,
                                         const ModelShape& shape, const char* params = "{}") {
  const StageSpec* spec = *FindStage(kind, id);
  const Result<Params> parsed = Params::Parse(spec->params, *ParseJson(params, "test"), id);
  EXPECT_TRUE(parsed.ok());
  const std::vector<int64_t> lengths = {8};
  return spec->calibrate(*parsed, shape, lengths);
}

// Three entries of two heads in layer 0 of a model with dims of 2.
void FillSome(FakeView& view) {
  view.keys[0] = {3, 0, 4, 0, 0, 0};
  view.keys[1] = {0, 0, 0, 2, 0, 0};
  view.values[0] = {0, 5, 0, 0, 0, 0};
  view.values[1] = {1, 0, 0, 0, 0, 0};
}

TEST(EigenAttentionTest, LearnsOneBasisOfKeysAndOneOfEachHeadsValues) {
  const ModelShape shape = SmallShape(1, 2, 1, 2);
  FakeView view(shape, 3);
  FillSome(view);
  const auto calibrator = CalibratorOf(StageKind::kPrepare, "eigen_attention", shape);
  calibrator->Observe(0, view);
  const Calibration::Tables tables = calibrator->Finish(view.ops());
  EXPECT_EQ(tables.size(), 6u);
  // Keys of both heads: squares of 25 and 4. Energies are relative to their mean.
  const std::vector<float>& energy = tables.at("keys.0.energy").values;
  EXPECT_NEAR(energy[0] / energy[1], 25.0 / 4, 1e-4);
  EXPECT_THAT(tables.at("keys.0.directions").values, ElementsAre(1, 0, 0, 1));
  // The first head's values lie along the second axis, the other head's along the first.
  EXPECT_THAT(tables.at("values.0.0.directions").values, ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(tables.at("values.0.1.directions").values, ElementsAre(1, 0, 0, 1));
}

TEST(EigenAttentionTest, ThresholdsSumSingularValues) {
  const ModelShape shape = Wide(2, 24);
  const auto ranks = [&](double threshold) {
    FakeWeights weights(shape, false);
    const auto stage = PrepareOf("eigen_attention", StrCat("{\"threshold\": ", threshold, "}"));
    EXPECT_TRUE(stage->Transform(weights).ok());
    std::vector<int64_t> all;
    for (const auto& [place, bases] : weights.bases) {
      for (const FakeWeights::Basis& basis : bases) all.push_back(basis.rank);
    }
    return all;
  };
  EXPECT_THAT(ranks(0.05), Each(1));
  const std::vector<int64_t> some = ranks(0.6), more = ranks(0.9);
  for (size_t i = 0; i < some.size(); ++i) {
    EXPECT_LT(some[i], more[i]);
    EXPECT_LT(more[i], 4);
  }
}

TEST(AsvdTest, ScalesDecideWhichDirectionsStay) {
  // One KV head of 4 rows and 24 inputs: the last input is large, and one row alone reads it.
  const ModelShape shape = Wide(1, 24);
  const auto file = std::make_shared<Calibration>();
  file->path = "inputs.safetensors";
  std::vector<float> sizes(24, 1e-4f);
  sizes.back() = 1e4f;
  for (int64_t l = 0; l < shape.layers; ++l) file->tables[StrCat("inputs.", l)] = {{24}, sizes};
  const auto stage = PrepareOf("asvd", R"({"key_ratio": 0.25, "value_ratio": 0.25})");
  stage->Use(file);
  ASSERT_TRUE(stage->Check(shape).ok());
  FakeWeights weights(shape, false);
  ASSERT_TRUE(stage->Transform(weights).ok());
  for (const auto& [key, was] : weights.weights) {
    const std::vector<float>& is = weights.written.at(key);
    // The one direction that stays is the column of the large input.
    for (int64_t row = 0; row < 4; ++row) {
      const auto at = static_cast<size_t>(row * 24 + 23);
      EXPECT_NEAR(is[at], was[at], 1e-3 * (1 + std::abs(was[at])));
    }
  }
  file->tables.erase("inputs.0");
  EXPECT_THAT(stage->Check(shape).error().message, HasSubstr("inputs.0"));
}

// The importer of a stage on a published table.
Result<CalibrationTables> Imported(const std::string& id, const CalibrationTables& published) {
  const StageSpec* spec = *FindStage(StageKind::kStore, id);
  if (spec->import != nullptr) return spec->import(published);
  FakeWeights weights(SmallShape(1, 2, 1, 2), false);
  return spec->import_with(published, weights);
}

TEST(MatryoshkaTest, ImportsWhatTheCayleyMapMakesOrthogonal) {
  const std::string name = "base_model.model.model.layers.0.self_attn.";
  // X - X^T is [[0, 2], [-2, 0]]; the map of that is a quarter turn.
  const Result<CalibrationTables> tables =
      Imported("matryoshka", {{name + "key_unitary_transform_weights", {{1, 2, 2}, {5, 2, 0, 5}}},
                              {name + "mean_key_weights", {{1, 1, 1, 2}, {1, 1}}}});
  ASSERT_TRUE(tables.ok()) << tables.error().message;
  ASSERT_EQ(tables->size(), 1u);
  const std::vector<float>& turn = tables->at("keys.0.there").values;
  const std::vector<float> want = {0, 1, -1, 0};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(turn[i], want[i], 1e-6);
  EXPECT_THAT(Imported("matryoshka", {{"other", {{1}, {1}}}}).error().message,
              HasSubstr("key_unitary_transform_weights"));
  EXPECT_THAT(
      Imported("matryoshka", {{"x.key_unitary_transform_weights", {{1, 2, 2}, {1, 0, 0, 1}}}})
          .error()
          .message,
      HasSubstr("layers.N"));
}

TEST(MatryoshkaTest, HeadsKeepWhatTheSideFileSays) {
  const ModelShape shape = SmallShape(1, 2, 1, 4);
  const auto file = std::make_shared<Calibration>();
  file->path = "bases.safetensors";
  std::vector<float> units(2 * 16);
  for (size_t i = 0; i < 8; ++i) units[i / 4 * 16 + i % 4 * 5] = 1.0f;
  for (const char* side : {"keys", "values"}) {
    file->tables[StrCat(side, ".0.there")] = {{2, 4, 4}, units};
  }
  file->tables["keys.0.ranks"] = {{2}, {1, 3}};
  const auto stage = MakeStage<Store>(StageKind::kStore, "matryoshka");
  stage->Use(file);
  ASSERT_TRUE(stage->Check(shape).ok());
  const Result<StorePlan> plan = stage->Plan(shape, 0);
  ASSERT_TRUE(plan.ok());
  const auto* layout = plan->Get<Transformed>();
  ASSERT_NE(layout, nullptr);
  EXPECT_THAT(layout->key_change.kept, ElementsAre(1, 3));
  EXPECT_THAT(layout->value_change.kept, ElementsAre(2, 2));
  EXPECT_EQ(layout->key_change.begin(1), 4);
  EXPECT_EQ(layout->EntryBits(shape), 32 * (2 + 2));
  StoreUse use;
  use.shape = &shape;
  EXPECT_TRUE(layout->Check(use).ok());
  // Directions that are none.
  file->tables["keys.0.there"].values[0] = 2.0f;
  const Result<StorePlan> longer = stage->Plan(shape, 0);
  EXPECT_THAT(longer->layout->Check(use).error().message,
              HasSubstr("bases.safetensors: keys.0.there, head 0: column 0 times column 0 is 4"));
  file->tables["keys.0.ranks"] = {{2}, {0, 3}};
  EXPECT_THAT(stage->Check(shape).error().message, HasSubstr("whole numbers from 1 to 4"));
  file->tables["keys.0.there"] = {{1, 4, 4}, std::vector<float>(16)};
  EXPECT_FALSE(stage->Check(shape).ok());
}

TEST(DecoQuantTest, BlocksDivideDims) {
  EXPECT_THAT(MakeStage<Store>(StageKind::kStore, "decoquant")
                  ->Check(SmallShape(1, 1, 1, 24))
                  .error()
                  .message,
              HasSubstr("block 16: must divide"));
}

TEST(LeanKTest, ImportsMasksAndKeepsEachHeadsOwn) {
  EXPECT_THAT(
      MakeStage<Store>(StageKind::kStore, "leank")->Check(SmallShape(1, 2, 1, 2)).error().message,
      HasSubstr("needs masks of key channels"));
  EXPECT_THAT(Imported("leank", {{"mask", {{1, 4}, {1, 0, 0.5, 1}}}}).error().message,
              HasSubstr("layer 0 has 0.5"));
  EXPECT_THAT(Imported("leank", {{"mask", {{1, 6}, {1, 0, 0, 1, 1, 1}}}}).error().message,
              HasSubstr("right are [1, 4]"));
  const Result<CalibrationTables> tables = Imported("leank", {{"mask", {{1, 4}, {0, 1, 0, 0}}}});
  ASSERT_TRUE(tables.ok()) << tables.error().message;
  const auto file = std::make_shared<Calibration>();
  file->tables = *tables;
  const ModelShape shape = SmallShape(1, 2, 1, 2);
  const auto stage = MakeStage<Store>(StageKind::kStore, "leank", R"({"sinks": 1, "recent": 1})");
  stage->Use(file);
  ASSERT_TRUE(stage->Check(shape).ok());
  FakeView view(shape, 3);
  FillSome(view);
  StorePlan plan = std::move(*stage->Plan(shape, 0));
  stage->Calibrate(view, plan);
  const auto* layout = plan.Get<NarrowKeys>();
  ASSERT_NE(layout, nullptr);
  // A head that keeps none keeps the first.
  EXPECT_THAT(layout->kept, ElementsAre(1, 1));
  EXPECT_EQ(layout->channels.i32()[0], 1);
  EXPECT_EQ(layout->channels.i32()[1], 0);
}

TEST(LeanKTest, CountsMasksWhereNobodyTrainedAny) {
  const ModelShape shape = SmallShape(1, 2, 1, 2);
  FakeView view(shape, 3);
  FillSome(view);
  view.queries.assign(static_cast<size_t>(3 * shape.query_heads * 2), 1.0f);
  const auto calibrator =
      CalibratorOf(StageKind::kStore, "leank", shape, R"({"round_to": 1, "pruned": 0.5})");
  calibrator->Observe(0, view);
  const Calibration::Tables tables = calibrator->Finish(view.ops());
  EXPECT_THAT(tables.at("channels.0").values, ElementsAre(1, 0, 0, 1));
}

}  // namespace
}  // namespace kvgauge
