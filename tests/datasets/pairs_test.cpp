// SPDX-License-Identifier: Apache-2.0
#include "datasets/pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/strings.h"

namespace kvgauge {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class Pairs : public ::testing::Test {
 protected:
  Pairs()
      : path_(StrCat(testing::TempDir(), "pairs_",
                     testing::UnitTest::GetInstance()->current_test_info()->name(), ".jsonl")) {}
  ~Pairs() override { std::filesystem::remove(path_); }

  Result<PairScores> Score(const std::string& content, bool skip_bad = false,
                           const char* metric = "qa_f1") {
    std::ofstream(path_, std::ios::binary) << content;
    return ScorePairs(*FindMetric(metric), path_, skip_bad);
  }
  std::string ErrorOf(const std::string& content, const char* metric = "qa_f1") {
    const Result<PairScores> result = Score(content, false, metric);
    return result.ok() ? "" : result.error().message;
  }

  std::string path_;
};

constexpr const char* kGood = R"({"prediction": "a cat", "answers": ["the cat", "dog"], "x": 1})";

TEST_F(Pairs, MeanAndScoresByLine) {
  const Result<PairScores> result =
      Score(StrCat(kGood, "\r\n\n", R"({"prediction":"x","answers":["y"],"all_classes":null})"));
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_THAT(result->scores, ElementsAre(1, 0));
  EXPECT_THAT(result->lines, ElementsAre(1, 3));
  EXPECT_EQ(result->mean, 0.5);
}

TEST_F(Pairs, ErrorsNameLineAndColumn) {
  EXPECT_THAT(ErrorOf(StrCat(kGood, "\n{\"prediction\": \"\u00e9\u00e9\", x")),
              HasSubstr(".jsonl:2: not valid JSON at column 22"));
  EXPECT_THAT(ErrorOf("{\"prediction\": \"\u00e9\xFF\""), HasSubstr(":1: not UTF-8 at column 18"));
  EXPECT_THAT(ErrorOf(R"({"prediction": "a", "prediction": "b", "answers": []})"),
              HasSubstr(":1: key 'prediction' occurs twice"));
  EXPECT_THAT(ErrorOf(R"({"predictions": "a", "answers": []})"),
              HasSubstr("\"prediction\" is missing (did you mean 'predictions'?)"));
  EXPECT_THAT(ErrorOf(R"({"prediction": "a"})"), HasSubstr("\"answers\" is missing"));
  EXPECT_THAT(ErrorOf(R"({"prediction": 1, "answers": []})"),
              HasSubstr("\"prediction\" must be a text, not number"));
  EXPECT_THAT(ErrorOf(R"({"prediction": "", "answers": "a"})"),
              HasSubstr("\"answers\" must be a list of texts, not string"));
  EXPECT_THAT(ErrorOf(R"({"prediction": "", "answers": ["a", null]})"),
              HasSubstr("\"answers\"[1] must be a text, not null"));
  EXPECT_THAT(ErrorOf(R"({"prediction": "\ud800", "answers": []})"), HasSubstr(":1: not valid"));
  EXPECT_THAT(ErrorOf("[1]"), HasSubstr("must be an object"));
  EXPECT_THAT(ErrorOf(kGood, "classification"), HasSubstr(":1: classification needs all_classes"));
  EXPECT_THAT(ErrorOf("\n \n"), HasSubstr("no pair to score"));
  const Result<PairScores> missing = ScorePairs(*FindMetric("qa_f1"), path_ + ".none", false);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kIo);
}

TEST_F(Pairs, BadLinesCanBeSkipped) {
  const Result<PairScores> result = Score(StrCat("{\n", kGood, "\nnull\n"), true);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_THAT(result->scores, ElementsAre(1));
  EXPECT_THAT(result->bad_lines, SizeIs(2));
  EXPECT_FALSE(Score("{\n", true).ok());
}

TEST_F(Pairs, ALineTooLongIsNotHeld) {
  const std::string huge(static_cast<size_t>(kMaxPairBytes) + 100, 'x');
  EXPECT_THAT(ErrorOf(StrCat("{\"prediction\": \"", huge, "\", \"answers\": []}\n", kGood)),
              HasSubstr(":1: longer than 64"));
  const Result<PairScores> result = Score(StrCat(huge, "\n", kGood, "\n"), true);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_THAT(result->lines, ElementsAre(2));
}

}  // namespace
}  // namespace kvgauge
