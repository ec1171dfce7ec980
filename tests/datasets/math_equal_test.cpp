// SPDX-License-Identifier: Apache-2.0
// Answers to MATH problems against the published checkers (scripts/goldens/make_math).
#include <gtest/gtest.h>

#include <set>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "datasets/metric.h"
#include "datasets/task.h"

namespace kvgauge {
namespace {

Json Cases() {
  const Result<Json> json = ReadJsonFile(KVG_TEST_DATA "/datasets/data/math_equal.json");
  EXPECT_TRUE(json.ok()) << json.error().message;
  return *json;
}

double ScoreOf(const char* metric, const std::string& answer, const std::string& gold) {
  const Result<double> score = FindMetric(metric)->score({.prediction = answer, .answers = {gold}});
  EXPECT_TRUE(score.ok());
  return *score;
}

TEST(MathEqual, TextsAreComparedAsTheAuthorsDo) {
  int64_t equal = 0, count = 0;
  const Json cases = Cases();
  for (const Json& pair : cases["texts"]) {
    const std::string one = pair[0], other = pair[1];
    EXPECT_EQ(ScoreOf("math_string", one, other), pair[2].get<bool>() ? 1.0 : 0.0)
        << Quoted(one) << " and " << Quoted(other);
    equal += pair[2].get<bool>();
    ++count;
  }
  EXPECT_GE(count, 600);
  EXPECT_GT(equal, 100);
  EXPECT_GT(count - equal, 100);
}

// Where we say otherwise than math_verify, each for its reason.
const std::set<std::pair<std::string, std::string>> kDepartures = {
    // The normal form of texts drops the sign of percents, and decides first.
    {"10\\%", "10"},
};

TEST(MathEqual, ValuesAreComparedAsMathVerifyDoes) {
  int64_t equal = 0;
  const Json cases = Cases();
  for (const Json& pair : cases["values"]) {
    const std::string gold = pair[0], answer = pair[1];
    const bool departs = kDepartures.contains({gold, answer});
    EXPECT_EQ(ScoreOf("math_equal", answer, gold), pair[2].get<bool>() != departs ? 1.0 : 0.0)
        << Quoted(gold) << " and " << Quoted(answer);
    equal += pair[2].get<bool>();
  }
  EXPECT_GT(equal, 40);
}

TEST(MathEqual, TheLastBoxIsTakenWhole) {
  PostProcessing post;
  post.extract = "boxed_matched";
  const Json cases = Cases();
  for (const Json& pair : cases["boxes"]) {
    const std::string reply = pair[0];
    EXPECT_EQ(PostProcess(post, reply), pair[1].is_null() ? "" : pair[1].get<std::string>())
        << Quoted(reply);
  }
  EXPECT_EQ(PostProcess(post, "so \\boxed{\\frac{1}{2}}, not \\boxed{\\frac{1}{3}}."),
            "\\frac{1}{3}");
}

TEST(MathEqual, HostileAnswersEnd) {
  const std::string deep(1500, '('), signs(1900, '-'), digits(1900, '9');
  for (const std::string& answer :
       {deep, signs, digits, deep + "1", std::string("2^{2^{2^{2^{9}}}}"), std::string("\\frac"),
        std::string("\\sqrt["), std::string("1/0"), std::string("0^{-1}"), std::string("{"),
        std::string("\\begin{pmatrix}"), std::string("\\text{"), std::string(5000, '{'),
        std::string("170!!"), std::string("\\frac{1}{0}"), std::string(1000, ',')}) {
    EXPECT_EQ(ScoreOf("math_equal", answer, "3"), 0.0) << answer.substr(0, 40);
    EXPECT_EQ(ScoreOf("math_equal", "3", answer), 0.0) << answer.substr(0, 40);
  }
  EXPECT_EQ(ScoreOf("math_equal", "", "3"), 0.0);
}

// Equal answers vote for the same.
TEST(MathEqual, VotesHaveOneSpelling) {
  const MetricSpec& metric = *FindMetric("math_equal");
  ASSERT_TRUE(metric.canonical);
  const std::string half = metric.canonical("\\frac{1}{2}");
  for (const char* same : {"0.5", "\\dfrac12", "1/2", "2/4", " .5 "}) {
    EXPECT_EQ(metric.canonical(same), half) << same;
  }
  EXPECT_EQ(metric.canonical("\\left(1, 2\\right)"), metric.canonical("(1,2)"));
  EXPECT_NE(metric.canonical("(1,2)"), metric.canonical("(2,1)"));
}

}  // namespace
}  // namespace kvgauge
