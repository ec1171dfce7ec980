// SPDX-License-Identifier: Apache-2.0
// A run that the command line describes, and the examples that help texts show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "cli/run_fixture.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class FirstCommandTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    std::filesystem::create_directory(Path("tiny"));
    for (const char* file : {"config.json", "tokenizer.model", "tokenizer_config.json"}) {
      std::filesystem::rename(Path(file), Path(StrCat("tiny/", file)));
    }
  }
  Outcome Shell(const std::string& arguments) const { return RunProgram(directory_, arguments); }
  std::set<std::string> Keys(const std::string& database) const {
    const auto store = Open(database);
    std::set<std::string> keys;
    for (const StoredCell& cell : CellsOf(*store)) keys.insert(cell.cell.Key());
    return keys;
  }
};

TEST_F(FirstCommandTest, AnUnknownFlagIsNamedWithTheNearestOne) {
  const Outcome run = Shell("run --model tiny --buget 10%");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err,
              HasSubstr("'--buget' is no flag of 'kvgauge run' (did you mean '--budget'?); "
                        "'kvgauge run --help' lists all"));
  EXPECT_THAT(Shell("bench latency --contxts 64").err,
              HasSubstr("no flag of 'kvgauge bench latency' (did you mean '--contexts'?)"));
  EXPECT_THAT(Shell("--plugins x.so").err, HasSubstr("is no flag of 'kvgauge' (did you mean '--"));
  // Words that are no flags.
  EXPECT_THAT(Shell("sample reference/needle another").err, HasSubstr("another"));
}

// One sample of the reference model.
constexpr char kShorthand[] =
    "--model models/ref-gqa --task reference/needle --method knorm,kivi_4bit --budget 25%,64 "
    "--limit 2 "
    "--backend cpu --threads 2 ";

TEST_F(FirstCommandTest, ARunWithoutAFilePrintsTheOneItStandsFor) {
  const Outcome run = Shell(StrCat("run ", kShorthand, "--out direct.db"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Result<Json> config = ParseJson(run.out, "standard output");
  ASSERT_TRUE(config.ok()) << run.out;
  EXPECT_EQ((*config)["methods"], Json({"knorm", "kivi_4bit"}));
  EXPECT_EQ((*config)["budgets"], Json({"25%", "64"}));
  EXPECT_EQ((*config)["name"], "ref-gqa-reference_needle");
  Write("same.json", run.out);
  const Outcome again = Shell("run same.json --db file.db --quiet");
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(Keys("direct.db"), Keys("file.db"));
  EXPECT_EQ(Keys("direct.db").size(), 4u);  // full, knorm twice, kivi_4bit
  EXPECT_EQ(Samples("direct.db"), Samples("file.db"));
  EXPECT_EQ(Digest("direct.db"), Digest("file.db"));
  // Repeated, it goes on: nothing is left to do.
  const Outcome third = Shell(StrCat("run ", kShorthand, "--out direct.db --json"));
  ASSERT_EQ(third.exit_code, 0) << third.err;
  EXPECT_EQ((*ParseJson(third.out, "out"))["cells"], 0);
  EXPECT_EQ((*ParseJson(third.out, "out"))["config"], *config);

  const Outcome plan = Shell(StrCat("plan ", kShorthand));
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_TRUE(plan.out.starts_with(run.out)) << plan.out;
  EXPECT_THAT(plan.out, HasSubstr("results/ref-gqa-reference_needle.db"));
  const Outcome json = Shell(StrCat("plan ", kShorthand, "--json"));
  EXPECT_EQ((*ParseJson(json.out, "out"))["config"], *config);
}

TEST_F(FirstCommandTest, WhatIsWrongIsNamedByItsFlag) {
  const auto fault = [&](const std::string& arguments) {
    const Outcome outcome = Shell("run " + arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_LT(outcome.err.size(), 400u) << "a list that is no help: " << outcome.err;
    return outcome.err;
  };
  const std::string model = "--model models/ref-gqa ", task = "--task passkey ";
  EXPECT_THAT(fault(""), AllOf(HasSubstr("quickstart"), HasSubstr("--model DIR")));
  EXPECT_THAT(
      fault("--model models/ref-gqa"),
      AllOf(HasSubstr("--task NAME"), HasSubstr("--method"), Not(HasSubstr("--model DIR"))));
  EXPECT_THAT(fault(model + task + "--method snapvk --budget 20%"),
              AllOf(HasSubstr("--method: unknown method 'snapvk'"), HasSubstr("'snapkv'"),
                    HasSubstr("'kvgauge methods' lists all"), Not(HasSubstr("minicache"))));
  EXPECT_THAT(fault(model + task + "--method kivi --budget 20%"),
              AllOf(HasSubstr("'kivi_2bit'"), HasSubstr("'kivi_4bit'")));
  EXPECT_THAT(fault(model + task + "--method snapkv"), HasSubstr("--budget 10%,20%"));
  EXPECT_THAT(fault(model + task + "--method snapkv --budget 200%"), HasSubstr("--budget: "));
  EXPECT_THAT(fault(model + "--task passkeys --method knorm --budget 64"),
              AllOf(HasSubstr("--task: unknown task"), HasSubstr("'passkey'")));
  EXPECT_THAT(fault("--model models/ref-gqo " + task + "--method knorm --budget 64"),
              AllOf(HasSubstr("--model: no such model"), HasSubstr("models/ref-gqa")));
  EXPECT_THAT(fault("quickstart " + model), HasSubstr("one or the other"));
  EXPECT_FALSE(FileExists(Path("results")));
}

// The lines under "Examples:" of a help text.
std::vector<std::string> ExamplesOf(const std::string& help) {
  std::vector<std::string> examples;
  const size_t begin = help.find("\nExamples:\n");
  if (begin == std::string::npos) return examples;
  for (const std::string& line : Split(help.substr(begin), '\n')) {
    if (line.starts_with("  kvgauge ")) examples.push_back(line.substr(10));
  }
  return examples;
}

// Every example runs where this machine has what it names: models of users, clusters and devices it
// lacks, and whole measurements take their time. tests/harness parses those too.
bool RunsHere(const std::string& example) {
  if (example == "run quickstart" || example.starts_with("bench ")) return false;
  if (example.starts_with("submit ") && example.find("--dry-run") == std::string::npos)
    return false;
  return example.find("~/") == std::string::npos && example.find("cuda") == std::string::npos &&
         example.find("--check") == std::string::npos &&
         example.find("longbench/qasper") == std::string::npos &&
         !example.starts_with("reproduce snapkv");  // LongBench, too
}

TEST_F(FirstCommandTest, ExamplesOfHelpRun) {
  std::filesystem::create_directory_symlink(KVG_SOURCE_DIR "/models", Path("models"));
  std::filesystem::create_directory(Path("results"));
  std::filesystem::copy(Path("tiny/config.json"), Path("config.json"));
  std::string text;
  for (int i = 0; i < 400; ++i) text += StrCat("The number of the box is ", i, ". ");
  Write("text.txt", text);
  Write("ids.json", Json(std::vector<int>(256, 7)).dump());
  Write("messages.json", R"([{"role": "user", "content": "Hi"}])");
  Write("predictions.jsonl", R"({"prediction": "a", "answers": ["a"], "language": "en"})");
  Write("mine.json", R"({"models": ["models/ref-gqa"], "methods": ["full", "snapkv"],
    "tasks": [{"task": "passkey", "source": {"lengths": "256"}, "samples": 2}],
    "budgets": ["20%"]})");
  // Results of other programs, as they write them.
  Write("results.json", R"({"results": {"arc_easy": {"alias": "arc_easy", "acc,none": 0.75}},
    "model_name": "some/model"})");
  std::filesystem::create_directory(Path("results/ruler"));
  Write("results/ruler/metrics.json", R"({"niah_single_1": {"string_match": 100.0}})");
  Write("results/ruler/config.yaml",
        "dataset: ruler\ndata_dir: '4096'\nmodel: some/model\npress_name: snapkv\n"
        "compression_ratio: 0.5\nquery_aware: false\n");
  // What commands about results are shown: two cells of two methods.
  Write("some.json", R"({"models": ["models/ref-gqa"], "methods": ["snapkv", "h2o"],
    "tasks": [{"task": "reference/needle", "source": {"lengths": "1024"}, "samples": 4}],
    "budgets": ["20%"]})");
  const Outcome made = Shell("run some.json --quiet --db results/quickstart.db");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  for (const char* copy : {"before.db", "after.db", "results/shard-1.db", "results/shard-2.db"}) {
    std::filesystem::copy(Path("results/quickstart.db"), Path(copy));
  }
  int run = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KVG_SOURCE_DIR "/tests/cli/help")) {
    const std::string help = *ReadFile(entry.path());
    if (entry.path().stem() == "kvgauge") continue;
    const std::vector<std::string> examples = ExamplesOf(help);
    EXPECT_FALSE(examples.empty()) << entry.path();
    for (std::string example : examples) {
      if (!RunsHere(example)) continue;
      // A few samples show that it runs.
      if (example.starts_with("run --model")) example += " --limit 1";
      const Outcome outcome = Shell(example);
      EXPECT_EQ(outcome.exit_code, 0) << example << ": " << outcome.err;
      ++run;
    }
  }
  EXPECT_GE(run, 30);
}

}  // namespace
}  // namespace kvgauge
