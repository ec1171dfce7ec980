// SPDX-License-Identifier: Apache-2.0
#include "datasets/pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "src/metric_language.h"

namespace kvgauge {
namespace {

using testing::AllOf;
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
    return ScorePairs(*FindMetric(metric), path_, {.skip_bad = skip_bad});
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

// VLMEvalKit's own rating of the same answers (scripts/goldens/make_yes_or_no_sets).
TEST_F(Pairs, HallusionBenchAndPopeAreRatedAsVlmEvalKitDoes) {
  const Result<Json> golden =
      ReadJsonFile(StrCat(KVG_TEST_DATA, "/golden/metrics/yes_or_no_sets.json"));
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  ASSERT_GE(golden->at("sets").size(), 7u);
  for (const Json& set : golden->at("sets")) {
    // A model's name before the index, as a run's answers have it.
    std::string lines, of_run;
    for (Json pair : set["pairs"]) {
      lines += pair.dump() + "\n";
      pair["id"] = "a_model/" + pair["id"].get<std::string>();
      pair["group"] = "told, but not asked";
      of_run += pair.dump() + "\n";
    }
    for (const auto& [metric, score] : set["scores"].items()) {
      for (const std::string& content : {lines, of_run}) {
        const Result<PairScores> result = Score(content, false, metric.c_str());
        ASSERT_TRUE(result.ok()) << result.error().message;
        EXPECT_NEAR(result->mean, score.get<double>(), 1e-12) << metric;
      }
    }
  }
  EXPECT_THAT(ErrorOf(R"({"id": "VD_ocr_1_2_3", "prediction": "yes", "answers": ["yes"]})",
                      "hallusionbench_figures"),
              HasSubstr(R"(.jsonl:1: "id": is 'VD_ocr_1_2_3', expected HallusionBench's index)"));
  EXPECT_THAT(ErrorOf(R"({"group": "g", "prediction": "yes", "answers": ["yes"]})",
                      "hallusionbench_questions"),
              HasSubstr("\"id\" is missing"));
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
  EXPECT_THAT(ErrorOf(R"({"prediction": "", "answers": {"a": 1}})"),
              HasSubstr("\"answers\" must be a text, a number or a list of them, not object"));
  EXPECT_THAT(ErrorOf(R"({"prediction": "", "answers": ["a", null]})"),
              HasSubstr("\"answers\"[1] must be a text or a number, not null"));
  EXPECT_THAT(ErrorOf(R"({"prediction": "\ud800", "answers": []})"), HasSubstr(":1: not valid"));
  EXPECT_THAT(ErrorOf(R"({"prediction": "", "answers": []})"),
              HasSubstr(":1: \"answers\" is empty: no prediction could be right"));
  EXPECT_THAT(ErrorOf(R"({"prediction": "", "ground_truth": []})"),
              HasSubstr(":1: \"ground_truth\" is empty"));
  EXPECT_THAT(ErrorOf("[1]"), HasSubstr("must be an object"));
  EXPECT_THAT(ErrorOf(kGood, "classification"), HasSubstr(":1: classification needs all_classes"));
  EXPECT_THAT(ErrorOf("\n \n"), HasSubstr("no pair to score"));
  const Result<PairScores> missing = ScorePairs(*FindMetric("qa_f1"), path_ + ".none", {});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(missing.error().message, HasSubstr(".none: cannot open"));
}

TEST_F(Pairs, BadLinesCanBeSkipped) {
  const Result<PairScores> result = Score(StrCat("{\n", kGood, "\nnull\n"), true);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_THAT(result->scores, ElementsAre(1));
  EXPECT_THAT(result->bad_lines, SizeIs(2));
  EXPECT_FALSE(Score("{\n", true).ok());
}

TEST_F(Pairs, ATaskBringsItsStopAndItsPostProcessing) {
  Task task;
  task.stop.texts = {"Q:"};
  task.post.skip_newlines = task.post.first_line = true;
  std::ofstream(path_) << R"({"prediction": "\nred Q: blue", "answers": ["red"]})"
                       << "\n"
                       << R"({"prediction": "red\nblue", "answers": ["red"]})"
                       << "\n";
  const Result<PairScores> raw = ScorePairs(*FindMetric("accuracy"), path_, {});
  ASSERT_TRUE(raw.ok()) << raw.error().message;
  EXPECT_EQ(raw->mean, 0);
  const Result<PairScores> result = ScorePairs(*FindMetric("accuracy"), path_, {.task = &task});
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->mean, 1);
}

TEST_F(Pairs, PublishedNamesWillDo) {
  const Result<PairScores> result = Score(R"({"pred": "7", "ground_truth": 7})"
                                          "\n"
                                          R"({"pred": "7", "label": ["six", 7]})"
                                          "\n"
                                          R"({"pred": "8", "label": [[7, 8]]})",
                                          false, "accuracy");
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_THAT(result->scores, ElementsAre(1, 1, 1));
  EXPECT_THAT(ErrorOf(R"({"pred": "7", "label": [[]]})"), HasSubstr("\"label\" is empty"));
  EXPECT_THAT(ErrorOf(R"({"pred": "7", "label": [[7], 7]})"),
              HasSubstr("\"label\"[0] must be a text or a number, not array"));
}

// RULER's, LongBench v2's, and answers that are one text or numbers.
TEST_F(Pairs, OtherSuitesFilesAreRead) {
  const Result<PairScores> result =
      Score(R"({"pred": "7", "outputs": ["7"], "index": 0})"
            "\n"
            R"({"_id": "a", "answer": "B", "pred": "B"})"
            "\n"
            R"({"_id": "b", "answer": "B", "pred": null, "response": "B"})"
            "\n"
            R"({"prediction": "x", "answers": "x"})"
            "\n"
            R"({"prediction": "5", "answers": [5]})",
            false, "accuracy");
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_THAT(result->scores, ElementsAre(1, 1, 0, 1, 1));
  EXPECT_THAT(ErrorOf(R"({"answer": "B", "pred": null})"),
              HasSubstr("\"pred\" must be a text, not null"));
  Task task;
  task.post.extract = "longbench_v2";
  std::ofstream(path_)
      << R"j({"answer": "B", "pred": "C", "response": "The correct answer is (B)"})j";
  const Result<PairScores> whole = ScorePairs(*FindMetric("accuracy"), path_, {.task = &task});
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole->mean, 1);
}

TEST_F(Pairs, BlankAnswersAreRefused) {
  for (const char* answers : {R"([""])", R"(["", " \n\u3000"])", R"("")"}) {
    const std::string line = StrCat(R"({"prediction": "x", "answers": )", answers, "}");
    for (const char* metric : {"partial_match", "string_match_all", "contains"}) {
      EXPECT_THAT(ErrorOf(line, metric), HasSubstr(":1: \"answers\" holds blank text alone"));
    }
    EXPECT_THAT(Score(StrCat(line, "\n", kGood), true)->bad_lines, SizeIs(1));
  }
  EXPECT_TRUE(Score(R"({"prediction": "x", "answers": ["", "x"]})").ok());
}

TEST_F(Pairs, AMetricOfAnotherLanguageIsRefused) {
  const auto line = [](const char* language) {
    return StrCat(R"({"prediction": "\u6211", "answers": ["\u6211"], "language": ")", language,
                  "\"}\n");
  };
  EXPECT_THAT(ErrorOf(line("zh"), "qa_f1"),
              AllOf(HasSubstr(":1"), HasSubstr("take --metric qa_f1_zh")));
  EXPECT_THAT(ErrorOf(line("zh-CN"), "rouge_1"), HasSubstr("no twin of it cuts Chinese words"));
  EXPECT_THAT(ErrorOf(line("en"), "token_recall_zh"), HasSubstr("take --metric token_recall"));
  EXPECT_EQ(ErrorOf(line("zh"), "qa_f1_zh_characters"), "");
  EXPECT_EQ(ErrorOf(line("zh"), "accuracy"), "");
  EXPECT_EQ(ErrorOf(StrCat(line("en"), line("python")), "qa_f1"), "");
  const Task task;
  std::ofstream(path_) << line("zh");
  EXPECT_TRUE(ScorePairs(*FindMetric("qa_f1"), path_, {.task = &task}).ok());
}

// Every metric in the table is one, and no twin is left out of it.
TEST(EnglishMetrics, AreRegisteredWithTheirTwins) {
  std::set<std::string> twins = {"qa_f1_zh_characters"};  // counts characters: no twin of qa_f1
  for (const EnglishMetric& metric : EnglishMetrics()) {
    EXPECT_NE(FindMetric(metric.name), nullptr) << metric.name;
    if (metric.chinese.empty()) continue;
    EXPECT_NE(FindMetric(metric.chinese), nullptr) << metric.chinese;
    twins.insert(metric.chinese);
  }
  for (const MetricSpec* metric : ListMetrics()) {
    if (metric->name.find("_zh") == std::string::npos) continue;
    EXPECT_TRUE(twins.contains(metric->name)) << metric->name;
  }
}

TEST_F(Pairs, ASampleIsScoredOnce) {
  const auto line = [](const std::string& rest) {
    return StrCat(R"({"prediction": "x", "answers": ["x"], )", rest, "}\n");
  };
  const std::string twice = StrCat(line(R"("id": 7)"), line(R"("id": 8)"), line(R"("id": 7)"));
  EXPECT_THAT(ErrorOf(twice), HasSubstr(".jsonl:3: \"id\" 7 is already in line 1"));
  EXPECT_THAT(ErrorOf(StrCat(line(R"("_id": "a")"), line(R"("_id": "a")"))),
              HasSubstr("\"_id\" \"a\" is already in line 1"));
  const Result<PairScores> rest = Score(twice, true);
  EXPECT_THAT(rest->lines, ElementsAre(1, 2));
  EXPECT_THAT(rest->bad_lines, SizeIs(1));
  // Questions about one context, and samples of several sets.
  EXPECT_EQ(ErrorOf(StrCat(line(R"("id": 7, "turn_idx": 0)"), line(R"("id": 7, "turn_idx": 1)"),
                           line(R"("id": 7, "question": "who?")"), line(R"("id": "7")"))),
            "");
  const std::string sets = StrCat(line(R"("id": 7, "set": "a")"), line(R"("id": 7, "set": "b")"));
  EXPECT_THAT(ErrorOf(sets), HasSubstr(":2: \"id\" 7"));
  std::ofstream(path_) << sets;
  EXPECT_TRUE(ScorePairs(*FindMetric("qa_f1"), path_, {.by = {"set"}}).ok());
}

TEST_F(Pairs, GroupsHaveTheirOwnScores) {
  std::ofstream(path_) << R"({"prediction": "a", "answers": ["a"], "length": 3999, "k": "x"})"
                       << "\n"
                       << R"({"prediction": "b", "answers": ["a"], "length": 100, "k": "x"})"
                       << "\n"
                       << R"({"prediction": "a", "answers": ["a"], "length": 8000, "k": 2})";
  const Result<PairScores> result =
      ScorePairs(*FindMetric("accuracy"), path_, {.by = {"length_bucket", "k"}});
  ASSERT_TRUE(result.ok()) << result.error().message;
  std::vector<std::string> shown;
  for (const GroupScore& group : result->groups) {
    shown.push_back(StrCat(group.key, "=", group.value, " ", group.count, " ", group.score));
  }
  EXPECT_THAT(shown, ElementsAre("length_bucket=0-4k 2 0.5", "length_bucket=8k+ 1 1", "k=2 1 1",
                                 "k=x 2 0.5"));
  EXPECT_EQ(MeanOfGroups(*result, "k"), 0.75);
  EXPECT_EQ(MeanOfGroups(*result, "none"), 0);
  const Result<PairScores> missing =
      ScorePairs(*FindMetric("accuracy"), path_, {.by = {"subject"}});
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr(":1: \"subject\" is missing"));
}

// MLVU's M-Avg of seven tasks of unequal size.
TEST(MeanOfGroups, CountsEachTaskOnce) {
  PairScores scores;
  const auto add = [&](int right, int total) {
    scores.groups.push_back(
        {"task_type", StrCat(scores.groups.size()), total, static_cast<double>(right) / total, 0});
  };
  for (const auto& [right, total] :
       {std::pair(300, 539), std::pair(200, 355), std::pair(180, 352), std::pair(90, 206),
        std::pair(120, 259), std::pair(100, 200), std::pair(160, 264)}) {
    add(right, total);
  }
  EXPECT_NEAR(MeanOfGroups(scores, "task_type"), 0.519658, 1e-6);
}

// 49 of 160: a percentage that lies between two decimals, where the reference's own order of
// operations decides.
TEST_F(Pairs, PercentagesAreRoundedAsPublished) {
  std::string text;
  for (int i = 0; i < 160; ++i) {
    text += StrCat(R"({"prediction": ")", i < 49 ? "x" : "y", R"(", "answers": ["x"]})", "\n");
  }
  std::ofstream(path_) << text;
  Task task;
  task.report = {.scale = 100, .digits = 2, .by = {}};
  const Result<PairScores> result = ScorePairs(*FindMetric("accuracy"), path_, {.task = &task});
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->reported, 30.62);
  EXPECT_EQ(Reported(task.report, result->mean), 30.63);
}

TEST_F(Pairs, ALineCanNameItsTask) {
  std::ofstream(path_) << R"({"prediction": "A\nb", "answers": ["A"], "task": "first"})"
                       << "\n"
                       << R"({"prediction": "A\nb", "answers": ["A"]})"
                       << "\n";
  Task task;
  task.post.first_line = true;
  PairOptions options;
  options.find_task = [&](const std::string& name) -> Result<const Task*> {
    if (name == "first") return &task;
    return BadInput("no such task");
  };
  const Result<PairScores> result = ScorePairs(*FindMetric("accuracy"), path_, options);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_THAT(result->scores, ElementsAre(1, 0));
  std::ofstream(path_) << R"({"prediction": "A", "answers": ["A"], "task": "other"})"
                       << "\n";
  EXPECT_THAT(ScorePairs(*FindMetric("accuracy"), path_, options).error().message,
              AllOf(HasSubstr(":1"), HasSubstr("no such task")));
}

TEST(Reporting, RoundsAsPythonDoes) {
  const auto reported = [](double score, int digits) {
    return Reported({.scale = 1, .digits = digits, .by = {}}, score);
  };
  EXPECT_EQ(reported(0.125, 2), 0.12);
  EXPECT_EQ(reported(2.675, 2), 2.67);
  EXPECT_EQ(reported(0.5, 0), 0);
  EXPECT_EQ(reported(1.0 / 3, -1), 1.0 / 3);
  EXPECT_EQ(Reported({.scale = 100, .digits = 2, .by = {}}, 5.0 / 6), 83.33);
  EXPECT_EQ(LengthBucket(3999), "0-4k");
  EXPECT_EQ(LengthBucket(4000), "4-8k");
  EXPECT_EQ(LengthBucket(8000), "8k+");
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
