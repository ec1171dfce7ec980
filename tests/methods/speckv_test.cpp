// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "methods/fake_view.h"
#include "methods/tensors.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SpecKvTest, ItsProbeIsTheDraftOverTheWholePrompt) {
  const auto scorer = ScorerOf("speckv", R"({"lookahead": 5, "draft_model": "self"})");
  EXPECT_EQ(scorer->AnswerTokens(), 5);
  const std::vector<int32_t> prompt = {7, 8, 9}, answer = {4, 2};
  const auto probes = scorer->Probes({.prompt = prompt, .encode = {}, .answer = answer});
  ASSERT_TRUE(probes.ok());
  ASSERT_EQ(probes->size(), 1u);
  EXPECT_EQ((*probes)[0].ids, answer);
  EXPECT_EQ((*probes)[0].begin, 0);
  EXPECT_EQ((*probes)[0].end, 3);
}

// The best row and the best query head count, of the window's rows and the draft's.
TEST(SpecKvTest, HandWorked) {
  FakeView view(SmallShape(1, 1, 2, 2), 4);
  view.probe_maxima = {0.1f, 0.5f, 0.9f, 0.9f, 0.3f, 0.2f, 0.9f, 0.9f};
  view.At(0, 2, 0) = 0.2f;
  view.At(0, 3, 0) = 0.4f;
  view.At(1, 3, 1) = 0.6f;
  view.At(1, 1, 1) = 1.0f;  // of a row before the window
  const std::vector<float> scores =
      ScoreWith(*ScorerOf("speckv", R"({"window": 2, "kernel": 1, "draft_model": "self"})"), view);
  EXPECT_THAT(scores, ElementsAre(0.4f, 0.6f, kForcedScore, kForcedScore));
}

TEST(SpecKvTest, NeedsToBeToldWhoDrafts) {
  const Status unnamed = ScorerOf("speckv", "{}")->Check(SmallShape());
  ASSERT_FALSE(unnamed.ok());
  EXPECT_THAT(unnamed.error().message, HasSubstr("draft_model names no model; expected the dir"));
  ModelShape shape = SmallShape();
  EXPECT_TRUE(ScorerOf("speckv", R"({"draft_model": "self"})")->Check(shape).ok());
  shape.state_bytes = 8;
  EXPECT_FALSE(ScorerOf("speckv", R"({"draft_model": "self"})")->Check(shape).ok());
  EXPECT_TRUE(ScorerOf("speckv", R"({"draft_model": "some/where"})")->Check(shape).ok());
}

}  // namespace
}  // namespace kvgauge
