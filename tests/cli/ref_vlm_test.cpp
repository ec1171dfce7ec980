// SPDX-License-Identifier: Apache-2.0
// The shipped models that see: they answer pages that they were not trained on, and methods lose
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cli/run_fixture.h"

namespace kvgauge {
namespace {

constexpr char kRefVlm[] = KVG_SOURCE_DIR "/models/ref-vlm";
constexpr char kRefVlmMrope[] = KVG_SOURCE_DIR "/models/ref-vlm-mrope";

class RefVlmTest : public RunTest {
 protected:
  // What the model says to the page that its directory has for a demonstration.
  std::string AnswerToDemo(const std::string& model) {
    const std::string demo = StrCat(model, "/demo/");
    const Outcome outcome = Run({"generate", model, "--image", demo + "1.png", "--image",
                                 demo + "2.png", "--image", demo + "3.png", "--prompt-file",
                                 demo + "page.txt", "--max-new-tokens", "8", "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.exit_code == 0 ? (*ParseJson(outcome.out, "out"))["text"].get<std::string>()
                                  : "";
  }

  // Mean scores of a run by method and budget.
  std::map<std::string, double> ScoresOn(const std::string& task, const std::string& rest,
                                         const std::string& model = kRefVlm) const {
    Write("mine.json",
          StrCat(R"({"models": [")", model, R"("], "tasks": [)", task, "], ", rest, "}"));
    RunInto("r.db", {"--quiet"});
    const auto store = Open("r.db");
    std::map<std::string, double> means;
    for (const StoredCell& cell : CellsOf(*store)) {
      const std::vector<ScoreRow> scores = ScoresOf(*store, cell);
      double sum = 0;
      for (const ScoreRow& row : scores) {
        EXPECT_EQ(row.status, SampleStatus::kOk) << row.sample_id;
        sum += row.score.value_or(0);
      }
      means[cell.cell.method.name] = sum / static_cast<double>(scores.size());
    }
    return means;
  }
};

// Greedy answers of the demonstration page, as Hugging Face's Llava gives them.
TEST_F(RefVlmTest, ReadsTheDemonstrationPage) {
  EXPECT_THAT(AnswerToDemo(kRefVlm), testing::StartsWith("421"));
}

// By chance, three digits are right once in a thousand pages.
TEST_F(RefVlmTest, AnswersHeldOutPagesAndMethodsTell) {
  const std::map<std::string, double> pairs =
      ScoresOn(R"({"task": "visual/pairs", "samples": 12, "source": {"pictures": "16"}})",
               R"("budgets": ["10%"], "methods": ["full", "snapkv", "random_visual", "fastv"])");
  EXPECT_GE(pairs.at("full"), 0.85);
  EXPECT_GE(pairs.at("snapkv"), 0.75 * pairs.at("full"));
  EXPECT_LE(pairs.at("random_visual"), 0.25);
  EXPECT_GE(pairs.at("fastv"), 0.5) << "half of the rows are background";
}

TEST_F(RefVlmTest, FindsTheNeedleAtEachDepth) {
  const std::map<std::string, double> needle = ScoresOn(
      R"({"task": "visual/needle", "samples": 9, "source": {"pictures": "8", "depths": "0,50,100"}})",
      R"("budgets": ["10%"], "methods": ["full"])");
  EXPECT_GE(needle.at("full"), 0.85);
}

// The second model, whose positions have three axes.
TEST_F(RefVlmTest, PositionsOfThreeAxesReadTheirDemonstrationPage) {
  EXPECT_THAT(AnswerToDemo(kRefVlmMrope), testing::StartsWith("506"));
}

TEST_F(RefVlmTest, PositionsOfThreeAxesFindTheNeedleAndMethodsTell) {
  const std::map<std::string, double> needle = ScoresOn(
      R"({"task": "visual/needle", "samples": 11, "source": {"pictures": "16"}})",
      R"("budgets": ["10%"], "methods": ["full", "snapkv", "random_visual"])", kRefVlmMrope);
  EXPECT_GE(needle.at("full"), 0.85);
  EXPECT_GE(needle.at("snapkv"), 0.75 * needle.at("full"));
  EXPECT_LE(needle.at("random_visual"), 0.25);
}

}  // namespace
}  // namespace kvgauge
