// SPDX-License-Identifier: Apache-2.0
// HeadKV: what heads hold by their importance, and how it is learned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "methods/calibration.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two layers of two heads, 40 entries a head of 100, 8 of them protected.
Allocation Allocated(const std::string& params, const std::vector<float>& heads) {
  auto stage = MakeStage<Allocator>(StageKind::kAllocate, "headkv", params);
  auto calibration = std::make_shared<Calibration>();
  calibration->tables["heads"] = {{2, 2}, heads};
  stage->Use(calibration);
  const ModelShape shape = SmallShape(2, 2);
  EXPECT_TRUE(stage->Check(shape).ok());
  const Result<Allocation> allocation =
      stage->Allocate({.shape = &shape, .length = 100, .per_head = 40, .protected_entries = 8});
  EXPECT_TRUE(allocation.ok());
  return *allocation;
}

TEST(HeadKvTest, ThePoolGoesByImportance) {
  // Half of 32 entries a head are pooled: 64 in all, in eighths.
  const std::string learned = R"("calibration": "f", "beta": 2)";
  EXPECT_THAT(Allocated("{" + learned + "}", {0.1f, 0.2f, 0.4f, 0.1f}),
              ElementsAre(ElementsAre(32, 40), ElementsAre(56, 32)));
  // Squares: 1, 4, 16 and 1 of 22.
  EXPECT_THAT(Allocated("{" + learned + R"(, "sharpness": 2})", {0.1f, 0.2f, 0.4f, 0.1f}),
              ElementsAre(ElementsAre(27, 36), ElementsAre(70, 27)));
  // All of it: a head holds no more than there is, the others share what it leaves.
  EXPECT_THAT(Allocated(R"({"calibration": "f", "beta": 1})", {0, 0, 1, 0}),
              ElementsAre(ElementsAre(20, 20), ElementsAre(100, 20)));
  EXPECT_THAT(Allocated("{" + learned + "}", {0, 0, 0, 0}),
              ElementsAre(ElementsAre(40, 40), ElementsAre(40, 40)));
}

TEST(HeadKvTest, RefusesTablesThatAreNoImportance) {
  const auto stage =
      MakeStage<Allocator>(StageKind::kAllocate, "headkv", R"({"calibration": "f"})");
  auto calibration = std::make_shared<Calibration>();
  calibration->path = "f";
  calibration->tables["heads"] = {{2, 2}, {0, 1, -1, 0}};
  stage->Use(calibration);
  EXPECT_THAT(stage->Check(SmallShape(2, 2)).error().message, HasSubstr("f: table 'heads'"));
  EXPECT_FALSE(stage->Check(SmallShape(2, 3)).ok());
}

// The first head looks at the sink and at the last entry alone, the second at one between.
TEST(HeadKvTest, WithoutACalibrationByWhatThePromptLooksBackAt) {
  FakeView view(SmallShape(1, 2), 20);
  for (int64_t i = 0; i < 20; ++i) {
    view.At(0, i, 0) = 0.5f;
    view.At(0, i, 19) = 0.5f;
    view.At(1, i, 0) = 0.25f;
    view.At(1, i, 5) = 0.75f;
  }
  std::vector<float> scores(2 * 20);
  for (const int64_t h : {0, 1}) scores[h * 20] = scores[h * 20 + 19] = kInf;
  const Tensor tensor = View(scores, {2, 20});
  LayerView* views[] = {&view};
  const auto stage = MakeStage<Allocator>(StageKind::kAllocate, "headkv", R"({"beta": 2})");
  EXPECT_TRUE(stage->needs_scores());
  const ModelShape shape = view.shape();
  EXPECT_THAT(*stage->Allocate({.shape = &shape,
                                .length = 20,
                                .per_head = 10,
                                .protected_entries = 2,
                                .scores = {&tensor, 1},
                                .views = views}),
              ElementsAre(ElementsAre(6, 14)));
}

// Ten tokens, read twice; of two query heads of the only KV head the first gives half of its
// attention to what comes next, the second a quarter to what stood there itself.
TEST(HeadKvTest, LearnsWhoCopies) {
  const StageSpec* spec = *FindStage(StageKind::kAllocate, "headkv");
  const Params params = *Params::Parse(spec->params, Json::object(), "test");
  const ModelShape shape = SmallShape(1, 1, 2);
  const std::vector<int64_t> lengths = {21, 21};
  const auto calibrator = spec->calibrate(params, shape, lengths);
  std::vector<int32_t> text(21);
  for (int32_t i = 0; i < 21; ++i) text[i] = i;
  const std::vector<int32_t> read = calibrator->Reads(text);
  ASSERT_EQ(read.size(), 20u);
  for (int32_t i = 0; i < 20; ++i) EXPECT_EQ(read[i], i % 10);
  EXPECT_EQ(calibrator->needs(0), Needs{.window = 64});

  FakeView view(shape, 20);
  for (int64_t i = 10; i < 20; ++i) {
    if (i < 19) view.At(0, i, i - 9) = 0.5f;
    view.At(1, i, i - 10) = 0.25f;
  }
  calibrator->Observe(0, view);
  for (int64_t i = 10; i < 19; ++i) view.At(0, i, i - 9) = 0.25f;
  calibrator->Observe(0, view);
  const Calibration::Tables tables = calibrator->Finish(view.ops());
  ASSERT_EQ(tables.at("heads").shape, (std::vector<int64_t>{1, 1}));
  // Half a head's half, and half a head's quarter, over two texts.
  EXPECT_FLOAT_EQ(tables.at("heads").values[0], 0.5f * (0.25f + 0.125f));
}

}  // namespace
}  // namespace kvgauge
