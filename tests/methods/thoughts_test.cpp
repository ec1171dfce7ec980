// SPDX-License-Identifier: Apache-2.0
// Kinds of thought, how thoughts give up entries, and what is refused.
#include "methods/thoughts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "fake_view.h"
#include "methods/method.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kStart = kThoughtStart;

TEST(ThoughtsTest, PartsOfThePromptAreAsLongAsThoughts) {
  FakeView view(SmallShape(1, 2), 5);
  EXPECT_THAT(ScoreWith("thoughts", R"({"period": 2})", view),
              ElementsAre(3, 3, 3 + 2 * kStart, 3 + 2 * kStart, 3 + 4 * kStart,  //
                          3, 3, 3 + 2 * kStart, 3 + 2 * kStart, 3 + 4 * kStart));
}

// One head of keys 0, 0, 0 and the newest; what the newest row pays follows from its query.
class ThoughtOf : public ::testing::Test {
 protected:
  ThoughtOf() {
    view_.queries = std::vector<float>(16);
    view_.is_decoding = true;
    view_.keys[0][12] = 1;  // of the newest entry
  }
  void Step(float query) {
    view_.queries[12] = query;
    scorer_->Age(view_, View(numbers_, {2, 1, 4}));
  }

  FakeView view_{SmallShape(), 4};
  const std::unique_ptr<Scorer> scorer_ =
      MakeStage<Scorer>(StageKind::kScore, "thoughts", R"({"period": 2, "dense": 0.5})");
  std::vector<float> numbers_ = {3, 3, 3, 0, 0, 0, 2, 0};
};

TEST_F(ThoughtOf, BeginsBehindThePromptByItsSparsity) {
  // e^10 to 1: three of four are below a hundredth of the most. Scores are halved (dim 4).
  Step(20);
  EXPECT_THAT(numbers_, ElementsAre(3, 3, 3, 2, 0, 0, 2, 3));  // not above 0.75
  Step(0);                                                     // the same numbers: it goes on
  EXPECT_THAT(numbers_, ElementsAre(3, 3, 3, 2, 0, 0, 2, 3));
  numbers_ = {3, 3, 3, 0, 0, 0, 2, 0};
  Step(0);
  EXPECT_THAT(numbers_, ElementsAre(3, 3, 3, 1, 0, 0, 2, 3));
}

TEST_F(ThoughtOf, GoesOnForItsTokens) {
  numbers_ = {3, 3, 0, 0, 0, 0, 2, 0};
  Step(0);
  EXPECT_THAT(numbers_, ElementsAre(3, 3, 0, 0, 0, 0, 2, 2));
  numbers_ = {3, 0, 0, 0, 0, 1, 1, 0};  // two tokens are over
  Step(0);
  EXPECT_THAT(numbers_, ElementsAre(3, 0, 0, 1, 0, 1, 1, 3));
}

// Two parts of a prompt, two thoughts and a third that just began, of keys 0 .. 9 along one axis.
std::vector<int32_t> KeptOf(float newest, int64_t allowed) {
  FakeView view(SmallShape(), 10);
  for (int64_t i = 0; i < 10; ++i) view.keys[0][4 * i] = static_cast<float>(i);
  const std::vector<float> scores = {3,
                                     3,
                                     3 + 2 * kStart,
                                     3 + 2 * kStart,
                                     2 + 4 * kStart,
                                     2 + 4 * kStart,
                                     2 + 4 * kStart,
                                     1 + 7 * kStart,
                                     1 + 7 * kStart,
                                     newest + 9 * kStart};
  const auto stage = MakeStage<Reducer>(StageKind::kReduce, "thoughts", R"({"schedule": "2,1"})");
  return Ints(ReduceWith(*stage, view, scores, {allowed}, nullptr, 1)[0].keep);
}

TEST(ThoughtsTest, AllThoughtsFallWhenATransitionBegins) {
  EXPECT_THAT(KeptOf(2, 10), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  // Clusters begin with 4 and 5, and 6 joins 5: their mean is as far from both.
  EXPECT_THAT(KeptOf(0, 10), ElementsAre(0, 1, 2, 3, 4, 5, 7, 9));
}

TEST(ThoughtsTest, AboveTheBudgetTheLeastImportantFalls) {
  EXPECT_THAT(KeptOf(2, 9), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 9));
  EXPECT_THAT(KeptOf(2, 7), ElementsAre(0, 1, 2, 3, 5, 7, 9));
  // Then the prompt, the oldest part first; and where one of each is too much, whole thoughts go.
  EXPECT_THAT(KeptOf(2, 5), ElementsAre(0, 2, 5, 7, 9));
  EXPECT_THAT(KeptOf(2, 3), ElementsAre(0, 2, 9));
  EXPECT_THAT(KeptOf(2, 1), ElementsAre(9));
}

TEST(ThoughtsTest, TiersGoByTheKind) {
  FakeView view(SmallShape(), 4);
  const auto stage =
      MakeStage<Store>(StageKind::kStore, "tiers", R"({"by": "score", "first": 2, "second": 1})");
  const std::vector<float> scores = {3, 1 + 4 * kStart, 0.5f, kInf};
  std::vector<int32_t> classes(4, -1);
  const std::vector<int64_t> classed = {0};
  stage->Classify(view, {.scores = View(scores, {1, 4}), .classed = classed},
                  View(classes, {1, 4}));
  EXPECT_THAT(classes, ElementsAre(0, 1, 2, 0));
}

std::string RefusalOf(const std::string& stages) {
  const Json json = *ParseJson(
      StrCat(R"({"id": "mine", "title": "t", "family": "selection", "version": 1, "stages": {)",
             stages, "}}"),
      "test");
  const Result<Method> method = ParseMethod(json, "test");
  if (!method.ok()) return method.error().message;
  const Status status = CheckMethod(*method, SmallShape(), {Budget::Kind::kFraction, 0.5}, 100);
  return status.ok() ? "" : status.error().message;
}

TEST(ThoughtsTest, RefusesWhatItCannotRead) {
  const std::string reduce = R"("reduce": {"id": "thoughts"}, "trigger": {"id": "refresh"}, )";
  EXPECT_EQ(RefusalOf(reduce + R"("score": {"id": "thoughts"})"), "");
  EXPECT_THAT(RefusalOf(reduce + R"("score": {"id": "h2o"})"),
              HasSubstr("reduce.thoughts reads the scores of score.thoughts, not those of "));
  EXPECT_THAT(RefusalOf(reduce + R"("score": {"id": "thoughts"}, "allocate": {"id": "ada"})"),
              HasSubstr("use allocate.uniform"));
  EXPECT_THAT(RefusalOf(reduce + R"("score": {"id": "thoughts", "dense": 0.9})"),
              HasSubstr("dense 0.9 is above sparse 0.75"));
  for (const char* schedule : {"", "4,4", "2,x", "8,0"}) {
    EXPECT_THAT(
        RefusalOf(StrCat(R"("trigger": {"id": "refresh"}, "score": {"id": "thoughts"}, )",
                         R"("reduce": {"id": "thoughts", "schedule": ")", schedule, R"("})")),
        HasSubstr("positive numbers that fall"));
  }
}

TEST(ThoughtsTest, TheTriggerActsWhereThoughtsBegin) {
  const auto trigger = MakeStage<Trigger>(StageKind::kTrigger, "refresh", R"({"steps": 4})");
  EXPECT_TRUE(trigger->AfterPrefill() && trigger->in_decode());
  EXPECT_TRUE(trigger->AfterStep(1, -5));
  EXPECT_FALSE(trigger->AfterStep(2, 0));
  EXPECT_TRUE(trigger->AfterStep(2, 1));
  EXPECT_TRUE(trigger->AfterStep(5, 0));
}

}  // namespace
}  // namespace kvgauge
