// SPDX-License-Identifier: Apache-2.0
// Baselines that give up rows of pictures and leave the text alone.
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

// Ten entries: text, text, six of a picture, text, text.
FakeView WithPicture(uint64_t seed = 1) {
  FakeView view(SmallShape(1, 2), 10, 0, seed);
  VisualSpan picture;
  picture.first = 2;
  picture.count = 6;
  picture.grid = {1, 2, 3};
  view.spans = {picture};
  return view;
}

TEST(RandomVisual, TextIsAboveEveryRowOfAPicture) {
  const auto scorer = ScorerOf("random_visual");
  EXPECT_TRUE(scorer->needs().modality);
  FakeView view = WithPicture(), other = WithPicture(2);
  const std::vector<float> scores = ScoreWith(*scorer, view);
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t i = 0; i < 10; ++i) {
      const float score = scores[head * 10 + i];
      if (i < 2 || i >= 8) {
        EXPECT_EQ(score, static_cast<float>(1 + i));
      } else {
        EXPECT_GE(score, 0);
        EXPECT_LT(score, 1);
      }
    }
  }
  EXPECT_NE(scores[2], scores[12]) << "heads draw their own numbers";
  EXPECT_NE(ScoreWith(*scorer, other), scores);
  EXPECT_EQ(Kept("top_k", "{}", view, scores, {4, 4})[0], (std::vector<int32_t>{0, 1, 8, 9}));
}

TEST(UniformVisual, KeepsTextAndEvenlySpacedRows) {
  FakeView view = WithPicture();
  const std::vector<float> scores = ScoreWith("text_first", "{}", view);
  EXPECT_THAT(std::vector<float>(scores.begin(), scores.begin() + 10),
              ElementsAre(1, 2, 0, 0, 0, 0, 0, 0, 9, 10));
  const auto kept = Kept("even_rest", "{}", view, scores, {7, 6});
  EXPECT_THAT(kept[0], ElementsAre(0, 1, 3, 5, 7, 8, 9));
  EXPECT_THAT(kept[1], ElementsAre(0, 1, 3, 6, 8, 9));
  const auto few = Kept("even_rest", "{}", view, scores, {3, 10});
  EXPECT_THAT(few[0], ElementsAre(1, 8, 9)) << "no row is left, and text goes from the oldest on";
  EXPECT_EQ(few[1].size(), 10u);
}

// Every k-th, wherever the number of rows divides.
TEST(UniformVisual, EveryKth) {
  FakeView view(SmallShape(), 120);
  VisualSpan picture;
  picture.count = 120;
  picture.grid = {1, 10, 12};
  view.spans = {picture};
  const std::vector<float> scores = ScoreWith("text_first", "{}", view);
  for (const int64_t k : {1, 2, 3, 4, 5, 8}) {
    const std::vector<int32_t> kept = Kept("even_rest", "{}", view, scores, {120 / k})[0];
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(kept[i], static_cast<int64_t>(i) * k + k / 2) << k;
    }
  }
}

// What is protected scores above all and counts as kept.
TEST(UniformVisual, ProtectedRowsStay) {
  FakeView view = WithPicture();
  std::vector<float> scores = ScoreWith("text_first", "{}", view);
  scores[2] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(Kept("even_rest", "{}", view, scores, {6, 4})[0], ElementsAre(0, 1, 2, 5, 8, 9));
}

TEST(Needs, AUnionAsksForTheMostOfBoth) {
  Needs one = {.question_rows = 5, .last_row_of = {1, 4}};
  one |= {.window = 8, .question_rows = 3, .last_row_of = {2, 4}, .modality = true};
  EXPECT_EQ(one.window, 8);
  EXPECT_EQ(one.question_rows, 5);
  EXPECT_THAT(one.last_row_of, ElementsAre(1, 2, 4));
  EXPECT_TRUE(one.modality);
  EXPECT_EQ(one.most_window(), 8);
}

}  // namespace
}  // namespace kvgauge
