// SPDX-License-Identifier: Apache-2.0
#include "datasets/mlvu_grades.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/strings.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Grades : public ::testing::Test {
 protected:
  ~Grades() override { std::filesystem::remove(path_); }
  Result<GradedSet> Average(const std::string& content, bool skip_bad = false) {
    std::ofstream(path_, std::ios::binary) << content;
    return AverageGrades(path_, "t", skip_bad);
  }
  std::string ErrorOf(const std::string& content) {
    const Result<GradedSet> set = Average(content);
    return set.ok() ? "" : set.error().message;
  }
  std::string path_ = StrCat(::testing::TempDir(), "grades_", getpid(), "_",
                             ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

std::string Line(const char* task, int first, int second) {
  return StrCat("{\"t\": \"", task, "\", \"grades\": [", first, ", ", second, "]}\n");
}

// The published code's numbers for these grades.
TEST_F(Grades, TasksCountOnce) {
  const Result<GradedSet> set =
      Average(StrCat(Line("ssc", 2, 2), "\n", Line("vs", 1, 2), Line("ssc", 3, 3), Line("vs", 5, 4),
                     Line("ssc", 4, 1)));
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_THAT(set->lines, ElementsAre(1, 3, 4, 5, 6));
  ASSERT_EQ(set->tasks.size(), 2u);
  EXPECT_EQ(set->tasks[0].name, "ssc");
  EXPECT_EQ(set->tasks[0].count, 3);
  EXPECT_NEAR(set->tasks[0].mean_sum, 5, 1e-12);
  EXPECT_NEAR(set->tasks[1].mean_sum, 6, 1e-12);
  EXPECT_NEAR(set->generation_average, 5.5, 1e-12);
  EXPECT_NEAR(Average(StrCat(Line("a", 1, 1), Line("b", 5, 5)))->generation_average, 6, 1e-12);
}

TEST_F(Grades, RepliesHoldTwoNumbers) {
  const auto parsed = [](const std::string& reply) {
    const Result<GradePair> pair = ParseGradePair(reply);
    return pair.ok() ? StrCat(pair->first, " ", pair->second) : pair.error().message;
  };
  EXPECT_EQ(parsed("{'score_completeness': 2, 'score_reliability': 3}"), "2 3");
  EXPECT_EQ(parsed("Completeness 4.5... reliability: 1."), "4.5 1");
  EXPECT_THAT(parsed("5"), HasSubstr("1 numbers, expected two grades of 1 to 5"));
  EXPECT_THAT(parsed("1 of 5: 3"), HasSubstr("3 numbers"));
  EXPECT_THAT(parsed("none."), HasSubstr("0 numbers"));
  EXPECT_THAT(parsed("0 5"), HasSubstr("a grade of 0"));
  EXPECT_THAT(parsed("5 6"), HasSubstr("a grade of 6"));
}

TEST_F(Grades, FaultsNameTheirLine) {
  const std::string good = Line("a", 1, 2);
  EXPECT_THAT(ErrorOf(StrCat(good, Line("a", 0, 2))), HasSubstr(":2: \"grades\": a grade of 0"));
  EXPECT_THAT(ErrorOf(R"({"t": "a", "grades": [1]})"), HasSubstr(":1: \"grades\": 1 numbers"));
  EXPECT_THAT(ErrorOf(R"({"t": "a", "grades": [1, "2"]})"), HasSubstr("\"grades\": no list"));
  EXPECT_THAT(ErrorOf(R"({"t": "a", "grades": 3})"), HasSubstr("\"grades\": no list"));
  EXPECT_THAT(ErrorOf(R"({"t": 1, "grades": [1, 2]})"), HasSubstr("\"t\" must be a text"));
  EXPECT_THAT(ErrorOf(R"({"grades": [1, 2]})"), HasSubstr("\"t\" must be a text"));
  EXPECT_THAT(ErrorOf(R"({"t": "a", "prediction": "bad"})"),
              HasSubstr("\"prediction\": 0 numbers"));
  EXPECT_THAT(ErrorOf(R"({"t": "a"})"), HasSubstr("neither \"grades\""));
  EXPECT_THAT(ErrorOf("\n"), HasSubstr("no grades"));
  const Result<GradedSet> kept = Average(StrCat("{\n", good), true);
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  EXPECT_EQ(kept->bad_lines.size(), 1u);
  EXPECT_EQ(kept->generation_average, 3);
}

}  // namespace
}  // namespace kvgauge
