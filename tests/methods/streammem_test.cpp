// SPDX-License-Identifier: Apache-2.0
// StreamMem, worked by hand.
#include <gmock/gmock.h>

#include "methods/see.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Ten entries a head: two of text, a video of two times of three, two of text.
FakeView WithTwoFrames() {
  FakeView view(SmallShape(1, 2, 2), 10);
  VisualSpan video;
  video.first = 2;
  video.count = 6;
  video.modality = Modality::kVideo;
  video.piece = VisualSpan::Piece::kFrames;
  video.grid = {2, 1, 3};
  view.spans = {video};
  return view;
}

std::vector<HeadPlan> Reduced(FakeView& view, const std::string& params,
                              const std::vector<float>& scores,
                              const std::vector<int64_t>& allocated) {
  const auto reducer = MakeStage<Reducer>(StageKind::kReduce, "streammem", params);
  const Tensor all = View(scores, {2, std::ssize(scores) / 2});
  return reducer->Reduce(view, {.scores = all, .allocated = allocated}, nullptr);
}

TEST(StreamMem, ATemplateSharesItsAttentionAmongPicturesAlone) {
  FakeView view = WithTwoFrames();
  view.Randomize(3);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "streammem", R"({"window": 2})");
  EXPECT_TRUE(scorer->takes_parts_of_pictures());
  EXPECT_EQ(scorer->rows_behind_chunks(), 2);
  const std::vector<float> scores = ScoreWith(*scorer, view);
  for (int64_t head = 0; head < 2; ++head) {
    double all = 0;
    for (int64_t i = 2; i < 8; ++i) {
      double want = 0;
      for (int64_t q = 2 * head; q < 2 * head + 2; ++q) {
        for (int64_t row = 8; row < 10; ++row) {
          double sum = 0;
          for (int64_t j = 2; j < 8; ++j) sum += double{view.At(q, row, j)};
          want += double{view.At(q, row, i)} / sum / 4;
        }
      }
      const double got = scores[static_cast<size_t>(head * 10 + i)];
      EXPECT_NEAR(got, want, 1e-6) << head << " " << i;
      all += got;
    }
    EXPECT_NEAR(all, 1, 1e-5);
    EXPECT_EQ(scores[static_cast<size_t>(head * 10)], 1.0f);
    EXPECT_EQ(scores[static_cast<size_t>(head * 10 + 1)], 2.0f);
    EXPECT_EQ(scores[static_cast<size_t>(head * 10 + 8)], kForcedScore) << "its own entries stay";
  }
}

constexpr float kFar = 1e30f;
const std::vector<float> kOfTwoFrames = {1, 2, 0.1f, 0.3f, 0.2f, 0.25f, 0.05f, 0.1f, kFar, kFar};

std::vector<float> ForBothHeads(std::vector<float> scores) {
  const std::vector<float> first = scores;
  scores.insert(scores.end(), first.begin(), first.end());
  return scores;
}

// Cosines of neighbours: 1, 0.6, 0.8, none with the frame of zeros, 1. The fourth has none with the
// first two, which does not matter.
TEST(StreamMem, FramesLikeTheOneBeforeJoin) {
  const std::vector<std::vector<float>> frames = {{1, 0}, {2, 0},  {0.6f, 0.8f}, {0, 3},
                                                  {0, 0}, {1, -1}, {2, -2}};
  FrameView view;
  for (const std::vector<float>& frame : frames) view.frames.emplace_back(frame);
  const auto join = [&](const std::string& params) {
    const auto see = MakeStage<See>(StageKind::kSee, "streammem", params);
    EXPECT_TRUE(see->sees().frames);
    return see->Join(view);
  };
  EXPECT_THAT(join("{}"), ElementsAre(0, 0, 2, 3, 4, 5, 5));
  EXPECT_THAT(join(R"({"above": 0.7})"), ElementsAre(0, 0, 2, 2, 4, 5, 5));
  EXPECT_THAT(join(R"({"above": 0.5})"), ElementsAre(0, 0, 0, 0, 4, 5, 5)) << "a run goes on";
  EXPECT_THAT(join(R"({"above": 1})"), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  view.frames.clear();
  EXPECT_THAT(join("{}"), ElementsAre());
}

// The mean of a frame takes the place of the best entry that goes, and only then is it made.
TEST(StreamMem, FramesThatLoseEntriesLeaveTheirMean) {
  FakeView view = WithTwoFrames();
  const std::vector<HeadPlan> plan = Reduced(view, "{}", ForBothHeads(kOfTwoFrames), {7, 5});
  EXPECT_THAT(Ints(plan[0].keep), ElementsAre(0, 1, 3, 4, 5, 8, 9));
  for (const MergeList* list : {&plan[0].keys, &plan[0].values}) {
    EXPECT_THAT(Ints(list->from), ElementsAre(2, 3, 4, 5, 6, 7));
    EXPECT_THAT(Ints(list->to), ElementsAre(4, 4, 4, 5, 5, 5));
    const std::vector<float> want = {1 / 6.0f, 0.5f, 1 / 3.0f, 0.625f, 0.125f, 0.25f};
    EXPECT_TRUE(AllWithin(Floats(list->weight), want, 1e-6));
    EXPECT_THAT(Floats(list->self), ElementsAre(1, 1, 1, 1, 0, 0, 1, 1, 1, 1));
  }
  // Room for one beside the text: the newest frame has it.
  EXPECT_THAT(Ints(plan[1].keep), ElementsAre(0, 1, 5, 8, 9));
  EXPECT_THAT(Ints(plan[1].keys.from), ElementsAre(5, 6, 7));
  EXPECT_THAT(Ints(plan[1].keys.to), ElementsAre(5, 5, 5));
}

TEST(StreamMem, FramesThatStayWholeHaveNoMean) {
  FakeView view = WithTwoFrames();
  std::vector<float> scores = kOfTwoFrames;
  for (size_t i = 5; i < 8; ++i) scores[i] += 0.5f;
  const std::vector<HeadPlan> plan = Reduced(view, "{}", ForBothHeads(scores), {9, 10});
  // Seven are chosen, which are the text and all of the second frame.
  EXPECT_THAT(Ints(plan[0].keep), ElementsAre(0, 1, 3, 5, 6, 7, 8, 9));
  EXPECT_THAT(Ints(plan[0].keys.to), ElementsAre(3, 3, 3));
  EXPECT_EQ(plan[1].keep.Numel(), 10) << "nothing goes";
  EXPECT_TRUE(plan[1].keys.empty());
}

// A head that lost an entry of a frame before has a mean of it already.
TEST(StreamMem, AFrameHasOneMean) {
  FakeView view = WithTwoFrames();
  view.SetLength(1, 9);
  view.positions[1] = {0, 1, 3, 4, 5, 6, 7, 8, 9, 0};
  std::vector<float> scores = kOfTwoFrames;
  const std::vector<float> fewer = {1, 2, 0.3f, 0.2f, 0.25f, 0.05f, 0.1f, kFar, kFar, 0};
  scores.insert(scores.end(), fewer.begin(), fewer.end());
  const std::vector<HeadPlan> plan = Reduced(view, "{}", scores, {10, 7});
  EXPECT_THAT(Ints(plan[1].keep), ElementsAre(0, 1, 2, 4, 6, 7, 8));
  EXPECT_THAT(Ints(plan[1].keys.from), ElementsAre(4, 5, 6));
  EXPECT_THAT(Ints(plan[1].keys.to), ElementsAre(6, 6, 6));
}

TEST(StreamMem, MeansAreOfSharesOrPlainOrNone) {
  FakeView view = WithTwoFrames();
  const std::vector<HeadPlan> plain =
      Reduced(view, R"({"merge": "average"})", ForBothHeads(kOfTwoFrames), {7, 7});
  EXPECT_TRUE(AllWithin(Floats(plain[0].values.weight), std::vector<float>(6, 1 / 3.0f), 1e-6));
  const std::vector<HeadPlan> none =
      Reduced(view, R"({"merge": "none"})", ForBothHeads(kOfTwoFrames), {7, 7});
  EXPECT_THAT(Ints(none[0].keep), ElementsAre(0, 1, 3, 4, 5, 8, 9));
  EXPECT_TRUE(none[0].keys.empty());
  EXPECT_FALSE(
      MakeStage<Reducer>(StageKind::kReduce, "streammem", R"({"merge": "none"})")->merges_keys());
}

}  // namespace
}  // namespace kvgauge
