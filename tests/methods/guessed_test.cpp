// SPDX-License-Identifier: Apache-2.0
// What a guessed query reads.
#include <gmock/gmock.h>

#include "chosen_entries.h"
#include "fake_view.h"
#include "methods/calibration.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

// Queries of one direction a row, so that their singular vectors are the dims. Queries are largest
// in dim 0, keys in dim 2.
class GuessedTest : public ::testing::Test {
 protected:
  static constexpr int64_t kHeld = 6;

  GuessedTest() : view(Shape(0), kHeld, 1) { Fill(view); }

  static ModelShape Shape(int64_t window) {
    ModelShape shape = SmallShape(2, 1, 2, 4);
    shape.windows = {0, window};
    return shape;
  }
  static void Fill(FakeView& filled) {
    filled.keys[0] = {0, 3, 10, 0, 2, 0, 7, 0, -6, 0, 8, 0, 0, 9, 4, 0, 1, 0, 0, 3, 0, 0, -20, 0};
    filled.queries.assign(static_cast<size_t>(kHeld * 2 * 4), 0.0f);
    for (int64_t i = 0; i < 4; ++i) {
      filled.queries[static_cast<size_t>(((kHeld - 4 + i) * 2) * 4 + i)] =
          static_cast<float>(8 >> i);
    }
    filled.guesses = {1, 9, 1, 9, 2, 9, 0, 9};
  }
  // By the guess of dims 0 and 2 query head 0 has the logits 5, 4.5, 1, 2 and 0.5, and query head 1
  // has 0, 2, -6, 0 and 1.
  static Reads Choose(FakeView& from, const std::string& params) {
    const auto reader = MakeStage<Reader>(
        StageKind::kRead, "guessed",
        StrCat(R"({"rows": 4, "columns": 0.25, "dense_layers": 1, )", params, "}"));
    const auto state = reader->Begin(from);
    // What the layer asks itself is not looked at.
    return SelectWith(*reader, from, *state, {0, 0, 0, 0, 0, 0, 0, 0});
  }

  FakeView view;
};

TEST_F(GuessedTest, ReadsAsManyAsAreNearTheBestOnAverage) {
  const Reads both = Choose(view, R"("alpha": 2, "share": 0.5)");
  EXPECT_TRUE(both.chosen);
  EXPECT_THAT(both.Of(0), ElementsAre(0, 1, 5));
  EXPECT_THAT(both.Of(1), ElementsAre(1, 4, 5));
  // One and two are near; the mean is cut.
  EXPECT_THAT(Choose(view, R"("alpha": 0.4, "share": 0.5)").Of(1), ElementsAre(1, 5));
  // The share is of those before the newest.
  EXPECT_THAT(Choose(view, R"("alpha": 2, "share": 0.39)").Of(0), ElementsAre(0, 5));
}

TEST_F(GuessedTest, ReadsEverythingWhereItMayOrKnowsNothing) {
  EXPECT_FALSE(Choose(view, R"("alpha": 100, "share": 1)").chosen);
  view.guesses.clear();
  EXPECT_FALSE(Choose(view, R"("alpha": 2, "share": 0.5)").chosen);
  FakeView below(Shape(0), kHeld, 0);
  Fill(below);
  EXPECT_FALSE(Choose(below, R"("alpha": 2, "share": 0.5)").chosen);
}

TEST_F(GuessedTest, WhatAWindowHidesTakesNoPlace) {
  FakeView slides(Shape(3), kHeld, 1);
  Fill(slides);
  EXPECT_THAT(Choose(slides, R"("alpha": 2, "share": 0.5)").Of(0), ElementsAre(3, 4, 5));
}

TEST_F(GuessedTest, HoldsTheKeptColumnsAlone) {
  const auto reader = MakeStage<Reader>(StageKind::kRead, "guessed",
                                        R"({"rows": 4, "columns": 0.25, "dense_layers": 1})");
  // Two columns of f32 keys; directions lie in whole lines of 64 bytes.
  EXPECT_EQ(reader->Begin(view)->bytes(), 4 * 2 * kHeld + 64);
  // Where a stage acted since the prompt, keys say which.
  view.is_decoding = true;
  const auto later = reader->Begin(view);
  EXPECT_EQ(later->bytes(), 4 * kHeld + 64);
  EXPECT_TRUE(SelectWith(*reader, view, *later, {0, 0, 0, 0, 0, 0, 0, 0}).Has(1, kHeld - 1));
}

// What texts teach is what a prompt of the same queries teaches by itself.
TEST_F(GuessedTest, CalibratedTurnsAreThoseOfTheTexts) {
  const StageSpec* spec = *FindStage(StageKind::kRead, "guessed");
  FakeView text(Shape(0), 40, 1), other(Shape(0), 40, 0);
  text.Randomize(3);
  other.Randomize(4);
  const Result<Params> params = Params::Parse(spec->params, {{"dense_layers", 1}}, "test");
  ASSERT_TRUE(params.ok());
  const auto calibrator = spec->calibrate(*params, Shape(0), {});
  calibrator->Observe(0, other);
  calibrator->Observe(0, text);
  auto calibration = std::make_shared<Calibration>();
  calibration->tables = calibrator->Finish(text.ops());
  const auto learned =
      MakeStage<Reader>(StageKind::kRead, "guessed",
                        R"({"rows": 40, "dense_layers": 1, "alpha": 0.2, "calibration": "file"})");
  learned->Use(calibration);
  ASSERT_TRUE(learned->Check(Shape(0)).ok());
  ModelShape wider = SmallShape(2, 1, 2, 8);
  EXPECT_FALSE(learned->Check(wider).ok());
  const auto own = MakeStage<Reader>(StageKind::kRead, "guessed",
                                     R"({"rows": 40, "dense_layers": 1, "alpha": 0.2})");
  text.guesses = RandomValues(8, 5);
  const Reads by_texts = SelectWith(*learned, text, *learned->Begin(text), text.guesses);
  const Reads by_prompt = SelectWith(*own, text, *own->Begin(text), text.guesses);
  EXPECT_TRUE(by_texts.chosen);
  EXPECT_EQ(by_texts.words, by_prompt.words);
}

}  // namespace
}  // namespace kvgauge
