// SPDX-License-Identifier: Apache-2.0
// Coordinates that are learned from text or come in a side-file.
#include "methods/basis_change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fake_view.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr const char* kLearnedKeys = R"({"key_bits": 4, "value_bits": 4, "key_basis": "learned"})";

// A side-file with `there` as the key matrices of layer 0.
std::shared_ptr<Calibration> FileOf(std::vector<int64_t> shape, std::vector<float> there) {
  auto file = std::make_shared<Calibration>();
  file->path = "some.safetensors";
  file->tables["keys.0.there"] = {std::move(shape), std::move(there)};
  return file;
}

// What a stage with that file plans for layer 0, or what is wrong with it.
Result<StorePlan> PlanWith(const std::shared_ptr<const Calibration>& file,
                           const ModelShape& shape) {
  const auto stage = MakeStage<Store>(StageKind::kStore, "affine", kLearnedKeys);
  stage->Use(file);
  KVG_TRY(stage->Check(shape));
  KVG_ASSIGN(StorePlan plan, stage->Plan(shape, 0));
  StoreUse use;
  use.shape = &shape;
  KVG_TRY(plan.layout->Check(use));
  return plan;
}
std::string RefusalOf(const std::shared_ptr<const Calibration>& file, const ModelShape& shape) {
  const Result<StorePlan> plan = PlanWith(file, shape);
  return plan.ok() ? "" : plan.error().message;
}

std::vector<float> Identity(int64_t heads, int64_t dim, float scale = 1.0f) {
  std::vector<float> numbers(static_cast<size_t>(heads * dim * dim));
  for (int64_t i = 0; i < heads * dim; ++i) {
    numbers[static_cast<size_t>(i * dim + i % dim)] = scale;
  }
  return numbers;
}

TEST(LearnedBasisTest, MatricesOfASideFileAreUsedWhereTheyLie) {
  const ModelShape shape = SmallShape(1, 2, 2, 16);
  const auto file = FileOf({2, 16, 16}, Identity(2, 16));
  const Result<StorePlan> plan = PlanWith(file, shape);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto* turned = plan->Get<Transformed>();
  ASSERT_NE(turned, nullptr);
  EXPECT_EQ(turned->key_change.there.get(), &file->tables.at("keys.0.there").values);
  EXPECT_EQ(turned->key_change.heads, 2);
  EXPECT_TRUE(turned->value_change.empty());
  // One that is not orthogonal needs what undoes it.
  const auto doubled = FileOf({1, 16, 16}, Identity(1, 16, 2.0f));
  EXPECT_THAT(
      RefusalOf(doubled, shape),
      HasSubstr("some.safetensors: keys.0.there, head 0: row 0 times row 0 is 4, which must "
                "be 1 within 0.002"));
  doubled->tables["keys.0.back"] = {{1, 16, 16}, Identity(1, 16, 0.5f)};
  EXPECT_EQ(RefusalOf(doubled, shape), "");
}

TEST(LearnedBasisTest, ACalibrationThatNothingReadsIsRefused) {
  const ModelShape shape = SmallShape(1, 2, 2, 16);
  const auto stage = MakeStage<Store>(StageKind::kStore, "affine", R"({"key_basis": "hadamard"})");
  ASSERT_TRUE(stage->Check(shape).ok());
  stage->Use(FileOf({1, 16, 16}, Identity(1, 16)));
  const Status status = stage->Check(shape);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message,
              HasSubstr("some.safetensors: nothing reads this calibration, as key_basis is "
                        "'hadamard' and value_basis 'none'; set one to 'learned'"));
}

TEST(LearnedBasisTest, RefusesMatricesOfAnotherModel) {
  const ModelShape shape = SmallShape(1, 2, 2, 16);
  EXPECT_THAT(RefusalOf(nullptr, shape), HasSubstr("a learned basis needs a calibration"));
  EXPECT_THAT(
      RefusalOf(FileOf({1, 8, 8}, Identity(1, 8)), shape),
      HasSubstr("some.safetensors: keys.0.there [1, 8, 8] (heads, rows, columns): right are 1 or 2 "
                "heads, 16 rows, and 16 columns or more"));
  EXPECT_THAT(RefusalOf(FileOf({3, 16, 16}, Identity(3, 16)), shape), HasSubstr("[3, 16, 16]"));
  EXPECT_THAT(RefusalOf(FileOf({16, 16}, Identity(1, 16)), shape),
              HasSubstr("some.safetensors: keys.0.there: must have three dims"));
  const auto other = std::make_shared<Calibration>();
  other->path = "some.safetensors";
  EXPECT_THAT(RefusalOf(other, shape),
              HasSubstr("keys.0.there: no such table; right are matrices of [1 or 2, 16, 16]"));
  std::vector<float> unknown = Identity(1, 16);
  unknown[5] = std::nanf("");
  EXPECT_THAT(RefusalOf(FileOf({1, 16, 16}, unknown), shape), HasSubstr("number 5 is nan"));
}

// All keys of a head lie along one direction: it comes first.
TEST(LearnedBasisTest, TheStrongestDirectionComesFirst) {
  const ModelShape shape = SmallShape(1, 2, 2, 4);
  FakeView view(shape, 12);
  const std::array<float, 4> along = {0.5f, -0.5f, 0.5f, 0.5f};
  for (int64_t e = 0; e < 12; ++e) {
    for (size_t c = 0; c < 4; ++c) {
      view.keys[1][static_cast<size_t>(e) * 4 + c] = static_cast<float>(e + 1) * along[c];
    }
  }
  const StageSpec* spec = *FindStage(StageKind::kStore, "affine");
  const Params params = *Params::Parse(spec->params, *ParseJson("{}", "test"), "affine");
  const int64_t length = 12;
  const auto calibrator = spec->calibrate(params, shape, {&length, 1});
  calibrator->Observe(0, view);
  const Calibration::Tables tables = calibrator->Finish(view.ops());
  const Calibration::Table& keys = tables.at("keys.0.there");
  EXPECT_EQ(keys.shape, (std::vector<int64_t>{2, 4, 4}));
  double along_first = 0;
  for (size_t c = 0; c < 4; ++c) along_first += along[c] * keys.values[16 + 4 * c];
  EXPECT_NEAR(std::abs(along_first), 1.0, 1e-5);
  // Heads of which nothing was seen, and values, have orthogonal matrices as well.
  for (const char* name : {"keys.0.there", "values.0.there"}) {
    BasisChange change;
    change.heads = 2;
    change.dim = change.stored = 4;
    change.there = std::make_shared<std::vector<float>>(tables.at(name).values);
    EXPECT_TRUE(CheckBasisChange(name, change, 2, 4).ok());
  }
}

}  // namespace
}  // namespace kvgauge
