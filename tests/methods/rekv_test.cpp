// SPDX-License-Identifier: Apache-2.0
// Frames that a question resembles, and where they stand when they are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "chosen_entries.h"
#include "core/strings.h"
#include "fake_view.h"
#include "methods/method.h"
#include "scarce_memory.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

VisualSpan PictureAt(int64_t first, int64_t count, int32_t index) {
  VisualSpan span;
  span.first = first;
  span.count = count;
  span.grid = {1, 1, static_cast<int32_t>(count)};
  span.index = index;
  return span;
}

// Three tokens, four pictures of two rows with a token behind each but the last, a question of two.
class ReKvTest : public ::testing::Test {
 protected:
  static constexpr int64_t kDim = 4, kTokens = 16;

  ReKvTest()
      : reader_(MakeStage<Reader>(StageKind::kRead, "rekv", R"({"picks": 2})")),
        view_(SmallShape(1, 2, 2, kDim), kTokens) {
    for (int32_t i = 0; i < 4; ++i) view_.spans.push_back(PictureAt(3 + 3 * i, 2, i));
    view_.queries.resize(kTokens * 4 * kDim);
    // Along x in the first KV head, along y in the second one. Means of both: 2, 1 + 6, 3, 4; sums
    // would put the third block before the fourth, which has two entries.
    const float along_x[] = {0, 0, 0, 6, 0, 0, 1, 1, 1, 0, 0, 9, 4, 4, 7, 7};
    for (int64_t e = 0; e < kTokens; ++e) view_.keys[0][e * kDim] = along_x[e];
    view_.keys[1][6 * kDim + 1] = view_.keys[1][7 * kDim + 1] = 9;
  }

  // The query of a head in one row.
  float* QueryOf(int64_t row, int64_t head) { return &view_.queries[(row * 4 + head) * kDim]; }

  std::unique_ptr<Reader> reader_;
  FakeView view_;
};

TEST_F(ReKvTest, ReadsTheFramesWhoseMeansTheQuestionResembles) {
  // Their mean is 1 along x in the first query head, and along y in the last one.
  QueryOf(14, 0)[0] = 2;
  QueryOf(14, 3)[1] = QueryOf(15, 3)[1] = 1;
  QueryOf(13, 0)[0] = -100;  // of a picture's row
  const auto state = reader_->Begin(view_);
  const std::vector<float> next(4 * kDim, -1.0f);
  const Answered step = AskWith(*reader_, view_, *state, next, false);
  ASSERT_TRUE(step.reads.chosen);
  for (int64_t head = 0; head < 4; ++head) {
    EXPECT_THAT(step.reads.Of(head), ElementsAre(0, 1, 2, 6, 7, 8, 12, 13, 14, 15));
  }
  // What is read comes just before the question, in its order.
  EXPECT_EQ((std::vector<int32_t>{step.places.begin(), step.places.begin() + 3}),
            (std::vector<int32_t>{6, 7, 8}));
  EXPECT_EQ((std::vector<int32_t>{step.places.begin() + 6, step.places.begin() + 9}),
            (std::vector<int32_t>{9, 10, 11}));
  EXPECT_EQ((std::vector<int32_t>{step.places.begin() + 12, step.places.end()}),
            (std::vector<int32_t>{12, 13, 14, 15}));
  EXPECT_EQ(SelectWith(*reader_, view_, *state, next).Of(2), step.reads.Of(2));
}

TEST_F(ReKvTest, AChoiceLastsUntilTheNextQuestion) {
  QueryOf(14, 0)[0] = QueryOf(15, 0)[0] = 1;
  const auto state = reader_->Begin(view_);
  // By x alone: 2, 1, 3, 4.
  const std::vector<int64_t> first = {0, 1, 2, 9, 10, 11, 12, 13, 14, 15};
  std::vector<float> rows(2 * 4 * kDim);
  rows[0] = -3;
  EXPECT_EQ(AskWith(*reader_, view_, *state, rows, false).reads.Of(0), first);
  const std::vector<int64_t> other = {0, 1, 2, 3, 4, 5, 6, 7, 8, 14, 15};
  EXPECT_EQ(AskWith(*reader_, view_, *state, rows, true).reads.Of(0), other);
  rows[0] = 3;
  EXPECT_EQ(AskWith(*reader_, view_, *state, rows, false).reads.Of(3), other);
}

TEST_F(ReKvTest, AChoiceThatFoundNoMemoryIsMadeAgain) {
  view_.is_decoding = true;  // the first step chooses
  std::vector<float> row(4 * kDim);
  row[0] = 1;
  ExpectChoosesAgain(*reader_, view_, row);
}

TEST_F(ReKvTest, ComparesQueriesBeforeTheirRotation) {
  view_.frequencies = {0.7, 0.1};
  // Along the first pair of dims, 0 and 2, each row turned by its position.
  for (const int64_t row : {14, 15}) {
    const double angle = 0.7 * static_cast<double>(row);
    QueryOf(row, 0)[0] = static_cast<float>(std::cos(angle));
    QueryOf(row, 0)[2] = static_cast<float>(std::sin(angle));
  }
  for (int64_t e = 3; e < 6; ++e) view_.keys[0][e * kDim + 2] = -9;
  const auto state = reader_->Begin(view_);
  const std::vector<float> none(4 * kDim);
  EXPECT_THAT(AskWith(*reader_, view_, *state, none, false).reads.Of(0),
              ElementsAre(0, 1, 2, 9, 10, 11, 12, 13, 14, 15));
}

TEST_F(ReKvTest, TimesOfAVideoAreBlocksAndSoArePiecesOfAText) {
  view_.spans.clear();
  VisualSpan video = PictureAt(3, 8, 0);
  video.modality = Modality::kVideo;
  video.piece = VisualSpan::Piece::kFrames;
  video.grid = {4, 1, 2};
  VisualSpan end = PictureAt(11, 1, 0);
  end.modality = Modality::kVideo;
  end.piece = VisualSpan::Piece::kNewline;
  view_.spans = {video, end};
  QueryOf(15, 0)[0] = 1;
  // Blocks 3 4, 5 6, 7 8, 9 to 11: means 3, 1/2, 1, 3.
  const std::vector<float> none(4 * kDim);
  auto state = reader_->Begin(view_);
  EXPECT_THAT(AskWith(*reader_, view_, *state, none, false).reads.Of(1),
              ElementsAre(0, 1, 2, 3, 4, 9, 10, 11, 12, 13, 14, 15));
  // Blocks of a text: 2 to 4, 5 to 7, 8 to 10 have means 2, 2/3, 1/3; one more would leave less
  // than `local`.
  view_.spans.clear();
  const auto of_text =
      MakeStage<Reader>(StageKind::kRead, "rekv",
                        R"({"picks": 2, "question": 1, "block": 3, "sinks": 2, "local": 3})");
  state = of_text->Begin(view_);
  EXPECT_THAT(AskWith(*of_text, view_, *state, none, false).reads.Of(0),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 14, 15));
}

TEST_F(ReKvTest, AsManyFramesAsAreReadStandWhereTheyStand) {
  const auto all = MakeStage<Reader>(StageKind::kRead, "rekv", R"({"picks": 4})");
  const auto state = all->Begin(view_);
  EXPECT_FALSE(SelectWith(*all, view_, *state, std::vector<float>(4 * kDim)).chosen);
  EXPECT_EQ(state->bytes(), 0);
}

TEST(ReKvChecks, KeysWaitForTheirPlaces) {
  const auto fault = [](const std::vector<std::string>& overrides) -> std::string {
    const Result<Method> method =
        LoadMethod("rekv", StrCat(KVG_SOURCE_DIR, "/configs/methods"), overrides);
    if (!method.ok()) return method.error().message;
    const Status status = CheckMethod(*method, SmallShape(2, 2, 2, 8), {}, 1000);
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(fault({}), "");
  EXPECT_THAT(fault({"store.position=original"}),
              AllOf(HasSubstr("read.rekv"), HasSubstr("store.plain keeps them turned"),
                    HasSubstr("position=read")));
  EXPECT_THAT(fault({"store.position=slot"}), HasSubstr("store.plain has another rule"));
  EXPECT_THAT(fault({"narrow.id=top_p"}), HasSubstr("would leave gaps"));
}

}  // namespace
}  // namespace kvgauge
