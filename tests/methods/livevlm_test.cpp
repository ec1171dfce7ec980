// SPDX-License-Identifier: Apache-2.0
// LiveVLM, worked by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "chosen_entries.h"
#include "core/strings.h"
#include "methods/method.h"
#include "scarce_memory.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two tokens, a video of times of three rows, one token.
FakeView WithTimes(int32_t times) {
  FakeView view(SmallShape(1, 2, 2), 3 + 3 * times);
  VisualSpan video;
  video.first = 2;
  video.count = int64_t{3} * times;
  video.modality = Modality::kVideo;
  video.piece = VisualSpan::Piece::kFrames;
  video.grid = {times, 1, 3};
  view.spans = {video};
  return view;
}

TEST(LiveVlmScore, TheNewestRowsOfPicturesLookForAllHeads) {
  FakeView view = WithTimes(2);  // the window: two rows of the video and one of text
  view.Randomize(4);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "livevlm", R"({"window": 3})");
  EXPECT_TRUE(scorer->takes_parts_of_pictures());
  const std::vector<float> scores = ScoreWith(*scorer, view);
  for (size_t head = 0; head < 2; ++head) {
    const float* own = &scores[head * 9];
    EXPECT_EQ(own[0], 1.0f);
    EXPECT_EQ(own[1], 2.0f);
    for (int64_t i = 2; i < 6; ++i) {
      double want = 0;
      for (int64_t q = 0; q < 4; ++q) want += (view.At(q, 6, i) + view.At(q, 7, i)) / 8;
      EXPECT_NEAR(own[i], want, 1e-6) << head << " " << i;
    }
    for (int64_t i = 6; i < 9; ++i) EXPECT_EQ(own[i], kForcedScore);
  }
}

TEST(LiveVlmScore, WithoutPicturesAllRowsLook) {
  FakeView view(SmallShape(1, 1, 2), 6);
  view.Randomize(5);
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "livevlm", R"({"window": 2})");
  const std::vector<float> scores = ScoreWith(*scorer, view);
  for (int64_t i = 0; i < 4; ++i) {
    const double want =
        (view.At(0, 4, i) + view.At(0, 5, i) + view.At(1, 4, i) + view.At(1, 5, i)) / 4.0;
    EXPECT_NEAR(scores[static_cast<size_t>(i)], want, 1e-6) << i;
  }
}

std::vector<int32_t> KeptOf(FakeView& view, const std::string& params,
                            const std::vector<float>& scores, int64_t kept) {
  const auto reducer = MakeStage<Reducer>(StageKind::kReduce, "livevlm", params);
  const std::vector<int64_t> allocated(view.lengths().size(), kept);
  std::vector<float> all;
  for (size_t head = 0; head < allocated.size(); ++head) {
    all.insert(all.end(), scores.begin(), scores.end());
  }
  const Tensor of_heads = View(all, {std::ssize(allocated), std::ssize(scores)});
  const auto plans = reducer->Reduce(view, {.scores = of_heads, .allocated = allocated}, nullptr);
  std::vector<int32_t> out;
  for (const HeadPlan& plan : plans) out.assign(plan.keep.i32(), plan.keep.i32() + kept);
  return out;
}

// Four of twelve. Two by their scores, which are in the first of four buckets; then the best of two
// others. The second best of the second bucket finds no place.
TEST(LiveVlmReduce, TheBestThenTheBestOfBucketsWithPlaces) {
  FakeView view(SmallShape(), 12);
  const std::vector<float> scores = {9, 8, 0, 0, 2.5f, 2, 0, 0, 0, 0, 1, 0.5f};
  EXPECT_THAT(KeptOf(view, "{}", scores, 4), ElementsAre(0, 1, 4, 10));
  EXPECT_THAT(KeptOf(view, R"({"scatter": 0})", scores, 4), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(KeptOf(view, R"({"scatter": 1})", scores, 4), ElementsAre(0, 4, 6, 10));
  // Two buckets of two: the first is full.
  EXPECT_THAT(KeptOf(view, R"({"capacity": 2})", scores, 4), ElementsAre(0, 1, 10, 11));
  // One bucket of three, and one place beside it.
  EXPECT_THAT(KeptOf(view, R"({"capacity": 3})", scores, 4), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(KeptOf(view, "{}", scores, 12), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

// Number i of 10, from 1 on, is in bucket ceil(i / (10 / 4)): 2, 3, 2 and 3 of them.
TEST(LiveVlmReduce, BucketsAreAsEvenAsCanBe) {
  FakeView view(SmallShape(), 10);
  std::vector<float> falling = {-1, -2, -3, -4, -5, -6, -7, -8, -9, -10};
  EXPECT_THAT(KeptOf(view, R"({"scatter": 1})", falling, 4), ElementsAre(0, 2, 5, 7));
  std::reverse(falling.begin(), falling.end());
  EXPECT_THAT(KeptOf(view, R"({"scatter": 1})", falling, 4), ElementsAre(1, 4, 6, 9));
}

// By the accounts' own words: token p of `length`, from 1 on, belongs to bucket ceil(p / (length /
// buckets)); the best go to their buckets, and then, best first, whoever finds a place.
std::vector<int32_t> FilledOneByOne(const std::vector<float>& scores, int64_t kept,
                                    int64_t capacity, int64_t best) {
  const int64_t length = std::ssize(scores), buckets = std::max<int64_t>(1, kept / capacity);
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](int32_t i) { return scores[i]; });
  std::vector<int64_t> held(buckets + 1);
  std::vector<int32_t> chosen, left;
  for (const int32_t token : order) {
    int64_t& in_bucket = held[((token + 1) * buckets + length - 1) / length];
    const bool room = std::ssize(chosen) < best || in_bucket < capacity;
    if (std::ssize(chosen) == kept || !room) {
      left.push_back(token);
      continue;
    }
    ++in_bucket;
    chosen.push_back(token);
  }
  while (std::ssize(chosen) < kept) {  // buckets that do not come to the budget
    chosen.push_back(left.front());
    left.erase(left.begin());
  }
  std::ranges::sort(chosen);
  return chosen;
}

TEST(LiveVlmReduce, KeepsWhatBucketsKeepThatAreFilledOneByOne) {
  int64_t cases = 0, beside_the_best = 0;
  for (const int64_t length : {7, 64, 130}) {
    FakeView view(SmallShape(), length);
    std::vector<float> scores = RandomValues(length, static_cast<uint64_t>(length), 1.0f);
    // Some are equal, and the last ones are the best, as neighbours of the rows that look are.
    for (int64_t i = 0; i < length; ++i) {
      scores[i] = std::round(scores[i] * 20) + static_cast<float>(10 * i / length);
    }
    for (const int64_t kept : {int64_t{1}, length / 3, length / 2, length - 1}) {
      for (const int64_t capacity : {1, 2, 3, 40}) {
        for (const double scatter : {0.0, 0.25, 0.5, 1.0}) {
          SCOPED_TRACE(StrCat(length, " ", kept, " ", capacity, " ", scatter));
          const std::string params =
              StrCat(R"({"capacity": )", capacity, R"(, "scatter": )", scatter, "}");
          const auto spread = std::llrint(scatter * static_cast<double>(kept));
          const auto want = FilledOneByOne(scores, kept, capacity, kept - spread);
          EXPECT_EQ(KeptOf(view, params, scores, kept), want);
          beside_the_best += want != FilledOneByOne(scores, kept, capacity, kept) ? 1 : 0;
          ++cases;
        }
      }
    }
  }
  EXPECT_GT(beside_the_best, cases / 4) << "buckets change something";
}

TEST(LiveVlmReduce, TextAndTheNewestFramesStay) {
  FakeView view = WithTimes(3);  // entries 2 to 10
  const std::vector<float> scores = {1, 2, 0.1f, 0.3f, 0.2f, 0.4f, 0, 0, 0, 0, 0, 12};
  const char* const one = R"({"newest": 1})";
  EXPECT_THAT(KeptOf(view, one, scores, 8), ElementsAre(0, 1, 3, 5, 8, 9, 10, 11));
  EXPECT_THAT(KeptOf(view, "{}", scores, 10), ElementsAre(0, 1, 3, 5, 6, 7, 8, 9, 10, 11));
  // Where there is no room for all of that, text goes last.
  EXPECT_THAT(KeptOf(view, one, scores, 4), ElementsAre(0, 1, 8, 11));
  // More frames than there are.
  EXPECT_THAT(KeptOf(view, R"({"newest": 5})", scores, 5), ElementsAre(0, 1, 3, 5, 11));
}

// Two tokens, five times of three rows, a question of one token; pages of two entries. The last
// time is read in any case.
class LiveVlmRead : public ::testing::Test {
 protected:
  static constexpr int64_t kDim = 4, kTokens = 18;

  LiveVlmRead()
      : reader_(MakeStage<Reader>(StageKind::kRead, "livevlm",
                                  R"({"page": 2, "newest": 1, "share": 0.34})")),
        view_(WithTimes(5)) {
    view_.queries.resize(kTokens * 4 * kDim);
    // Pages 2 3, 4 5, 6 7, 8 9, 10 11, 12 13 along x.
    const float along_x[] = {0, 0, 1, 1, 9, -9, 3, 4, 2, 2, 0, 0, 0, 1};
    for (int64_t e = 0; e < 14; ++e) view_.keys[0][e * kDim] = along_x[e];
    view_.keys[1][12 * kDim + 1] = view_.keys[1][13 * kDim + 1] = 30;
  }
  std::vector<float> Question(int64_t head, int64_t axis, float length) const {
    std::vector<float> rows(4 * kDim);
    rows[static_cast<size_t>(head * kDim + axis)] = length;
    return rows;
  }

  std::unique_ptr<Reader> reader_;
  FakeView view_;
};

TEST_F(LiveVlmRead, ReadsThePagesThatAQuestionAttendsTo) {
  view_.queries[17 * 4 * kDim] = 2;  // the first head's
  const auto state = reader_->Begin(view_);
  const std::vector<float> none(4 * kDim);
  const Answered step = AskWith(*reader_, view_, *state, none, false);
  ASSERT_TRUE(step.reads.chosen);
  for (int64_t head = 0; head < 4; ++head) {
    EXPECT_THAT(step.reads.Of(head), ElementsAre(0, 1, 6, 7, 8, 9, 14, 15, 16, 17));
  }
  // The next question is the last head's. One page gets all of its attention; the others are equal,
  // and the first of them is chosen.
  const std::vector<int64_t> other = {0, 1, 2, 3, 12, 13, 14, 15, 16, 17};
  const std::vector<float> asked = Question(3, 1, 2);
  EXPECT_EQ(AskWith(*reader_, view_, *state, asked, true).reads.Of(1), other);
  EXPECT_EQ(SelectWith(*reader_, view_, *state, none).Of(2), other);
}

// One head that looks hard is one of four: attention is averaged, not products.
TEST_F(LiveVlmRead, AHeadCountsOnceHoweverLargeItsProducts) {
  std::vector<float> asked = Question(0, 0, 1000);
  for (const size_t head : {2, 3}) asked[head * kDim + 1] = 1;
  const auto state = reader_->Begin(view_);
  // 6 7 gets all of the first head's, 12 13 nearly all of the last two's.
  EXPECT_THAT(AskWith(*reader_, view_, *state, asked, true).reads.Of(0),
              ElementsAre(0, 1, 6, 7, 12, 13, 14, 15, 16, 17));
}

TEST_F(LiveVlmRead, ComparesQueriesBeforeTheirRotation) {
  view_.frequencies = {0.7, 0.1};
  view_.queries[17 * 4 * kDim] = static_cast<float>(2 * std::cos(0.7 * 17));
  view_.queries[17 * 4 * kDim + 2] = static_cast<float>(2 * std::sin(0.7 * 17));
  const auto state = reader_->Begin(view_);
  const std::vector<float> none(4 * kDim);
  EXPECT_THAT(AskWith(*reader_, view_, *state, none, false).reads.Of(0),
              ElementsAre(0, 1, 6, 7, 8, 9, 14, 15, 16, 17));
}

TEST_F(LiveVlmRead, AChoiceThatFoundNoMemoryIsMadeAgain) {
  view_.is_decoding = true;  // the first step chooses
  ExpectChoosesAgain(*reader_, view_, Question(0, 0, 2));
}

TEST_F(LiveVlmRead, ATextHasPagesTooAndAllPagesAreNoChoice) {
  view_.spans.clear();
  const auto of_text =
      MakeStage<Reader>(StageKind::kRead, "livevlm",
                        R"({"page": 4, "share": 0.1, "question": 1, "sinks": 2, "local": 5})");
  view_.queries[17 * 4 * kDim] = 2;
  const std::vector<float> none(4 * kDim);
  auto state = of_text->Begin(view_);
  // 2 to 5, 6 to 9 and 10 to 12, which has three.
  EXPECT_THAT(AskWith(*of_text, view_, *state, none, false).reads.Of(0),
              ElementsAre(0, 1, 6, 7, 8, 9, 13, 14, 15, 16, 17));
  const auto all = MakeStage<Reader>(StageKind::kRead, "livevlm", R"({"share": 1})");
  state = all->Begin(view_);
  EXPECT_FALSE(SelectWith(*all, view_, *state, none).chosen);
  EXPECT_EQ(state->bytes(), 0);
}

std::string FaultOf(const std::vector<std::string>& overrides) {
  const Result<Method> method =
      LoadMethod("livevlm", StrCat(KVG_SOURCE_DIR, "/configs/methods"), overrides);
  if (!method.ok()) return method.error().message;
  const Budget budget = {Budget::Kind::kEntries, 500};
  const Status status = CheckMethod(*method, SmallShape(2, 2, 2, 32), budget, 1000);
  return status.ok() ? "" : status.error().message;
}

TEST(LiveVlmChecks, AllHeadsOfALayerReadTheSame) {
  EXPECT_EQ(FaultOf({}), "");
  EXPECT_EQ(FaultOf({"store.id=kivi"}), "");
  EXPECT_EQ(FaultOf({"score.id=snapkv"}), "");
  EXPECT_THAT(
      FaultOf({"allocate.id=ada"}),
      AllOf(HasSubstr("read.livevlm"), HasSubstr("allocate.ada"), HasSubstr("allocate.uniform")));
  EXPECT_THAT(FaultOf({"score.id=h2o", "trigger.id=every_step"}),
              AllOf(HasSubstr("trigger.every_step"), HasSubstr("use trigger.prefill")));
  EXPECT_THAT(FaultOf({"read.id=rekv", "store.position=read"}),
              HasSubstr("leave out one of the two"));
}

// Pages lie between positions, and a question's rows are the last ones.
TEST(LiveVlmChecks, EntriesLieInOrderAndAllRowsOfAQuestionAreThere) {
  EXPECT_EQ(FaultOf({"reduce.newest=3"}), "");
  EXPECT_THAT(FaultOf({"store.id=tiers", "store.first=0.5"}),
              AllOf(HasSubstr("read.livevlm"), HasSubstr("store.tiers orders them anew")));
  EXPECT_THAT(FaultOf({"thin.id=gemfilter", "thin.layer=1"}),
              AllOf(HasSubstr("read.livevlm"), HasSubstr("thin.gemfilter may let some")));
}

}  // namespace
}  // namespace kvgauge
