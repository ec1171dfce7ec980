// SPDX-License-Identifier: Apache-2.0
// Regular expressions of task files that find the answer in a prediction.
#include "datasets/answer_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "core/json.h"
#include "core/strings.h"
#include "datasets/formats.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string FoundBy(AnswerPattern::Settings settings, const std::string& text) {
  const auto pattern = AnswerPattern::Compile(std::move(settings));
  EXPECT_TRUE(pattern.ok()) << (pattern.ok() ? "" : pattern.error().message);
  return pattern.ok() ? (*pattern)->Find(text) : "";
}

TEST(AnswerPattern, TakesTheFirstOrTheLastMatch) {
  EXPECT_EQ(FoundBy({.regex = "-?\\d+"}, "7, -12 and 30."), "7");
  EXPECT_EQ(FoundBy({.regex = "-?\\d+", .last = true}, "7, -12 and 30."), "30");
  EXPECT_EQ(FoundBy({.regex = "is (\\w+)", .last = true}, "it is a, it is b"), "b");
  EXPECT_EQ(FoundBy({.regex = "x", .fallback = "[invalid]"}, "y"), "[invalid]");
  EXPECT_EQ(FoundBy({.regex = "x"}, "y"), "");
}

TEST(AnswerPattern, TakesTheGroupThatIsAskedFor) {
  EXPECT_EQ(FoundBy({.regex = "(\\d+)-(\\d+)", .group = 2}, "a 1-2"), "2");
  EXPECT_EQ(FoundBy({.regex = "(\\d+)-(\\d+)", .group = 0}, "a 1-2"), "1-2");
  // Without a group: the first that holds something, as of alternatives.
  EXPECT_EQ(FoundBy({.regex = "(-?[$0-9.,]{2,})|(-?[0-9]+)", .last = true}, "so $18, or 7"), "7");
  EXPECT_EQ(FoundBy({.regex = "a(b)?", .group = 1}, "a"), "");
}

TEST(AnswerPattern, EmptyMatchesEndAndCharactersStayWhole) {
  EXPECT_EQ(FoundBy({.regex = "\\d*", .last = true}, "1 \u00e9 2\u00e9"), "");
  EXPECT_EQ(FoundBy({.regex = "(?<=\u00e9)|\\d", .last = true}, "\u00e9\u00e9 3"), "3");
  EXPECT_EQ(FoundBy({.regex = "."}, "\u4e2d\u6587"), "\u4e2d");
  EXPECT_EQ(FoundBy({.regex = "\\d+"}, "\u0661\u0662"), "\u0661\u0662");
  EXPECT_EQ(FoundBy({.regex = "b."},
                    "a\xff"
                    "b\xfe"),
            "b\ufffd");
  EXPECT_EQ(FoundBy({.regex = "^$"}, ""), "");
}

TEST(AnswerPattern, OneThatNeverEndsFindsNothing) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(FoundBy({.regex = "(a+)+$", .fallback = "none"}, std::string(5000, 'a') + "b"), "none");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

std::string PatternError(const Json& extract) {
  const Json task = {
      {"name", "t"},
      {"version", 1},
      {"group", "g"},
      {"description", "d"},
      {"metric", "accuracy"},
      {"max_new_tokens", 5},
      {"post", {{"extract", extract}}},
      {"source", {{"name", "jsonl"}, {"file", "x/x.jsonl"}, {"context", "{c}"}, {"answers", "a"}}}};
  const Result<Task> parsed = ParseTask(task, "my.json");
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(AnswerPattern, FaultsNameFileKeyAndOffset) {
  EXPECT_THAT(PatternError({{"regex", "a(b"}}),
              AllOf(HasSubstr("my.json: post.extract.regex: 'a(b' is no regular expression"),
                    HasSubstr("at offset 3")));
  EXPECT_THAT(PatternError({{"regex", "a(b)"}, {"group", 2}}),
              HasSubstr("my.json: post.extract.group: 2; the pattern 'a(b)' has 1 group"));
  EXPECT_THAT(PatternError({{"regex", "a"}, {"take", "all"}}),
              HasSubstr("post.extract.take: '\"all\"'; expected 'first' or 'last'"));
  EXPECT_THAT(PatternError({{"regex", ""}}), HasSubstr("post.extract.regex"));
  EXPECT_THAT(PatternError({{"regexp", "a"}}), HasSubstr("post.extract.regex: missing"));
  EXPECT_THAT(PatternError({{"regex", "a"}, {"grp", 1}}),
              HasSubstr("post.extract.grp: unknown key"));
  EXPECT_THAT(PatternError({{"regex", "\\C"}}), HasSubstr("no regular expression"));
  EXPECT_EQ(PatternError({{"regex", "a(b)"}, {"group", 1}, {"take", "last"}, {"fallback", "x"}}),
            "");
}

TEST(AnswerPattern, TheExampleOfTheDocsIsATask) {
  const std::string folder = StrCat(KVG_SOURCE_DIR, "/docs/examples/regex_answer");
  const Result<Task> task = ReadTask(folder + "/task.json");
  ASSERT_TRUE(task.ok()) << task.error().message;
  TaskOptions options;
  options.data_directory = folder + "/data";
  const Result<std::vector<Sample>> samples = ReadAll(*task, options);
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  ASSERT_EQ(samples->size(), 2u);
  const auto score = [&](size_t sample, const std::string& output) {
    return *FindMetric(task->metric)
                ->score({.prediction = PostProcess(task->post, output),
                         .answers = (*samples)[sample].questions[0].answers});
  };
  EXPECT_EQ(score(0, "Answer: 40? No. answer: it is 42 apples."), 1);
  EXPECT_EQ(score(0, "42"), 0);
  EXPECT_EQ(score(1, "3 - 8 = -5\nAnswer: -5"), 1);
}

}  // namespace
}  // namespace kvgauge
