// SPDX-License-Identifier: Apache-2.0
// Baselines that give up rows of pictures and leave the text alone.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "methods/merging_thin.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

// Row i gives every earlier entry the same.
void LookEverywhere(FakeView& view) {
  for (int64_t head = 0; head < view.shape().query_heads; ++head) {
    for (int64_t i = 0; i < view.width(); ++i) {
      for (int64_t j = 0; j <= i; ++j) view.At(head, i, j) = 1.0f / static_cast<float>(i + 1);
    }
  }
}

TEST(VlCache, LayersThatLookAlikeShareAlike) {
  FakeView first = WithPicture(), second = WithPicture();
  LookEverywhere(first);
  LookEverywhere(second);
  const auto shares = [&](int64_t per_head) {
    return AllocateWith("vl_cache", "{}", SmallShape(2, 2), 10, per_head, {&first, &second});
  };
  EXPECT_THAT(shares(4), ElementsAre(ElementsAre(4, 4), ElementsAre(4, 4)));
  // In the second layer the question's two rows look at two entries alone, of those they see.
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t i = 8; i < 10; ++i) {
      for (int64_t j = 0; j <= i; ++j) second.At(head, i, j) = j < 2 ? 0.5f : 0.001f;
    }
  }
  // 19 of 19 against 4 of 19: two entries are protected, and the four others are divided by that.
  EXPECT_THAT(shares(4), ElementsAre(ElementsAre(5, 5), ElementsAre(3, 3)));
  EXPECT_THAT(shares(10), ElementsAre(ElementsAre(10, 10), ElementsAre(10, 10)));
  // What a layer cannot hold goes to the others.
  EXPECT_THAT(shares(9), ElementsAre(ElementsAre(10, 10), ElementsAre(8, 8)));
}

TEST(Question, SumsTheRowsBehindThePicture) {
  FakeView view = WithPicture();
  view.At(0, 8, 3) = 0.5f;
  view.At(0, 9, 3) = 0.25f;
  view.At(0, 7, 3) = 1.0f;  // of the picture itself
  view.At(1, 9, 0) = 0.125f;
  const std::vector<float> own = ScoreWith("question", "{}", view);
  EXPECT_EQ(own[3], 0.75f);
  EXPECT_EQ(own[10], 0.125f);
  const std::vector<float> all = ScoreWith("question", R"({"heads": "layer"})", view);
  EXPECT_EQ(all[3], 0.75f);
  EXPECT_EQ(all[13], 0.75f);
  EXPECT_EQ(all[0], 0.125f);
}

TEST(AirCache, TellingWordsOfTheQuestionChoose) {
  FakeView view = WithPicture();
  // The last row looks at itself five times as much as at the question's other word.
  view.At(0, 9, 9) = 0.5f;
  view.At(0, 9, 8) = 0.1f;
  view.At(0, 9, 3) = 0.2f;
  view.At(0, 9, 4) = 0.1f;
  view.At(0, 9, 0) = 0.1f;  // other text, which no softmax of the window counts
  view.At(0, 8, 5) = 0.75f;
  const std::vector<float> own = ScoreWith("aircache", "{}", view);
  EXPECT_FLOAT_EQ(own[3], 0.25f);
  EXPECT_FLOAT_EQ(own[4], 0.125f);
  EXPECT_EQ(own[5], 0);
  EXPECT_EQ(own[0], 1);
  EXPECT_EQ(own[9], 10);
  const std::vector<float> both = ScoreWith("aircache", R"({"alpha": 0.2})", view);
  EXPECT_FLOAT_EQ(both[3], 0.5f * 0.2f / 0.9f);
  EXPECT_FLOAT_EQ(both[5], 0.5f);
}

TEST(LookM, RowsOfPicturesGoFirst) {
  FakeView view = WithPicture();
  LookEverywhere(view);
  const std::vector<float> scores = ScoreWith("visual_h2o", "{}", view);
  EXPECT_EQ(Kept("top_k", "{}", view, scores, {4, 6})[0], (std::vector<int32_t>{0, 1, 8, 9}));
  // Those rows of the picture stay that are looked at most.
  EXPECT_EQ(Kept("top_k", "{}", view, scores, {4, 6})[1], (std::vector<int32_t>{0, 1, 2, 3, 8, 9}));
}

// Text, four frames of two by two, text.
FakeView WithFrames(int64_t layers = 1, int64_t layer = 0) {
  FakeView view(SmallShape(layers), 18, layer);
  VisualSpan video;
  video.modality = Modality::kVideo;
  video.piece = VisualSpan::Piece::kFrames;
  video.first = 1;
  video.count = 16;
  video.grid = {4, 2, 2};
  view.spans = {video};
  for (int64_t i = 0; i < 18; ++i) {
    view.keys[0][i * 4] = 1;
    view.values[0][i * 4] = static_cast<float>(i);
  }
  return view;
}

TEST(InfiniPotV, TheNewestFrameAndWhatIsUnlikeItStay) {
  // The last quarter of four layers averages nothing.
  FakeView view = WithFrames(4, 3);
  view.keys[0][2 * 4] = -1;  // one place of the first frame points away
  const std::vector<float> scores = ScoreWith("infinipot_v", "{}", view);
  EXPECT_GT(scores[0], scores[16]) << "text is above all frames";
  EXPECT_GT(scores[17], scores[0]) << "later text higher";
  EXPECT_EQ(scores[5], 5);
  // Two of text and ten of frames: five by likeness, of which four are the newest frame.
  EXPECT_EQ(Kept("infinipot_v", "{}", view, scores, {12})[0],
            (std::vector<int32_t>{0, 2, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}));
  // Less than the newest frame: its last entries.
  EXPECT_EQ(Kept("infinipot_v", R"({"share": 1})", view, scores, {4})[0],
            (std::vector<int32_t>{0, 15, 16, 17}));
  EXPECT_EQ(Kept("infinipot_v", "{}", view, scores, {1})[0], (std::vector<int32_t>{17}));
}

TEST(ValueNorm, AveragesOverNeighbours) {
  // Frames of two by two are too small to average but along the prompt.
  FakeView grid = WithFrames(4, 0);
  EXPECT_EQ(ScoreWith("infinipot_v", "{}", grid)[5], 5);
  FakeView line = WithFrames(4, 2);
  line.values[0][5 * 4] = 50;
  EXPECT_FLOAT_EQ(ScoreWith("infinipot_v", "{}", line)[5], (4 + 50 + 6) / 3.0f);
  EXPECT_FLOAT_EQ(ScoreWith("infinipot_v", "{}", line)[1], (1 + 2) / 3.0f)
      << "zeros beyond the end";
  EXPECT_FLOAT_EQ(ScoreWith("infinipot_v", R"({"pool": false})", line)[5], 50);
}

TEST(Csp, KindsAreChosenApart) {
  FakeView view = WithPicture();
  LookEverywhere(view);
  for (int64_t i = 8; i < 10; ++i) {
    view.At(0, i, 0) = 0.01f;
    view.At(0, i, 4) = 0.02f;
    view.At(0, i, 6) = 0.03f;
  }
  std::vector<float> scores(20);
  scores[8] = scores[9] = kForcedScore;
  // Both rows of the window are text: half of the room is for text, half for the picture.
  EXPECT_EQ(Kept("csp", R"({"window": 2, "cross": 0.5})", view, scores, {4, 10})[0].size(), 4u);
  const auto kept = Kept("csp", R"({"window": 2, "cross": 0.5})", view, scores, {4, 10});
  EXPECT_EQ(std::ranges::count_if(kept[0], [](int32_t i) { return i < 2; }), 1);
  EXPECT_EQ(std::ranges::count_if(kept[0], [](int32_t i) { return i >= 2 && i < 8; }), 1);
  EXPECT_EQ(kept[0][0], 1) << "the text that is looked at more";
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

constexpr int64_t kShownRows = 16;
const char* const kSmall =
    R"("weights": "random", "width": 8, "heads": 2, "inner": 12, "layer": 1)";

VisualSpan Shown(int64_t first, int64_t count, int32_t index) {
  VisualSpan span;
  span.first = first;
  span.count = count;
  span.grid = {1, 1, static_cast<int32_t>(count)};
  span.index = index;
  return span;
}

// Text, a picture of three rows, text, one of two pieces with six rows, text.
std::vector<int32_t> RowsThatGoOn(const std::string& params, const std::vector<float>& hidden) {
  FakeView view(SmallShape(2, 2, 1, 4), kShownRows);
  view.spans = {Shown(2, 3, 0), Shown(6, 4, 1), Shown(11, 2, 1)};
  const auto thin = MakeStage<MergingThin>(StageKind::kThin, "dynamic_llava", params);
  EXPECT_TRUE(thin->Check(view.shape()).ok());
  EXPECT_FALSE(thin->wants_inputs());
  ThinRows rows;
  rows.hidden = View(hidden, {kShownRows, 8});
  return Ints(thin->Pass(view, rows).kept);
}

TEST(DynamicLlava, EachPictureIsJudgedByItself) {
  std::vector<float> hidden = RandomValues(kShownRows * 8, 5, 1.0f);
  const std::string half = StrCat("{", kSmall, R"(, "drop": 0.5})");
  const std::vector<int32_t> all = RowsThatGoOn(half, hidden);
  const auto among = [](const std::vector<int32_t>& rows, std::set<int32_t> of) {
    std::vector<int32_t> found;
    for (const int32_t row : rows) {
      if (of.contains(row)) found.push_back(row);
    }
    return found;
  };
  EXPECT_THAT(among(all, {0, 1, 5, 10, 13, 14, 15}), ElementsAre(0, 1, 5, 10, 13, 14, 15));
  EXPECT_EQ(among(all, {2, 3, 4}).size(), 1u) << "half of three, cut";
  EXPECT_EQ(among(all, {6, 7, 8, 9, 11, 12}).size(), 3u) << "both pieces together";
  // Another first picture and other text move nothing in the second.
  const std::vector<float> other = RandomValues(6 * 8, 6, 1.0f);
  std::copy(other.begin(), other.end(), hidden.begin());
  EXPECT_EQ(among(RowsThatGoOn(half, hidden), {6, 7, 8, 9, 11, 12}),
            among(all, {6, 7, 8, 9, 11, 12}));
  // All rows, or none.
  std::vector<int32_t> every(kShownRows);
  std::iota(every.begin(), every.end(), 0);
  EXPECT_EQ(RowsThatGoOn(StrCat("{", kSmall, R"(, "drop": 0})"), hidden), every);
  EXPECT_THAT(RowsThatGoOn(StrCat("{", kSmall, R"(, "drop": 1})"), hidden),
              ElementsAre(0, 1, 5, 10, 13, 14, 15));
}

// More rows than are taken at a time see each other all the same: the place of a row among them
// does not matter.
TEST(DynamicLlava, RowsAreJudgedWithoutPlaces) {
  constexpr int64_t kMany = 300;
  const std::vector<float> hidden = RandomValues((kMany + 1) * 8, 7, 1.0f);
  std::vector<float> turned = hidden;
  for (int64_t row = 0; row < kMany; ++row) {
    std::copy_n(hidden.begin() + row * 8, 8, turned.begin() + (kMany - 1 - row) * 8);
  }
  const auto thin = MakeStage<MergingThin>(StageKind::kThin, "dynamic_llava",
                                           StrCat("{", kSmall, R"(, "drop": 0.7})"));
  const auto kept = [&](const std::vector<float>& given) {
    FakeView view(SmallShape(2, 2, 1, 4), kMany + 1);
    view.spans = {Shown(0, kMany, 0)};
    ThinRows rows;
    rows.hidden = View(given, {kMany + 1, 8});
    return Ints(thin->Pass(view, rows).kept);
  };
  const std::vector<int32_t> some = kept(hidden);
  std::vector<int32_t> again = kept(turned);
  ASSERT_EQ(some.size(), 91u);
  ASSERT_EQ(again.back(), kMany);
  again.pop_back();
  for (int32_t& row : again) row = static_cast<int32_t>(kMany - 1 - row);
  std::ranges::sort(again);
  again.push_back(kMany);
  EXPECT_EQ(again, some);
}

TEST(DynamicLlava, SizesThatDoNotFitAreRefused) {
  const auto error = [](const std::string& params) {
    const Status status =
        MakeStage<Stage>(StageKind::kThin, "dynamic_llava", params)->Check(SmallShape(2, 2, 1, 4));
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_THAT(error(R"({"weights": "random", "layer": 1, "width": 12, "heads": 8})"),
              HasSubstr("width is 12, which 4 and heads (8) do not both divide"));
  EXPECT_THAT(error(R"({"weights": "random"})"),
              HasSubstr("layer is 2, and the model has 2 layers; expected 1 .. 1"));
  EXPECT_THAT(error(R"({"layer": 1})"), HasSubstr("calibrate --import"));
}

}  // namespace
}  // namespace kvgauge
