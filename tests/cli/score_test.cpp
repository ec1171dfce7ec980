// SPDX-License-Identifier: Apache-2.0
// `kvgauge score`, and what a user with files of the wrong kind is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "cli/program.h"
#include "core/json.h"
#include "core/strings.h"
#include "support/local_server.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class ScoreTest : public ProgramTest {};

TEST_F(ScoreTest, ScoresAFileOfPredictions) {
  const std::string pairs =
      Write("pairs.jsonl",
            "{\"prediction\": \"the cat sat\", \"answers\": [\"a cat sat\", \"no\"]}\n"
            "{\"prediction\": \"nothing\", \"answers\": [\"a dog\"]}\n");
  const Outcome outcome = Run(StrCat("score --metric qa_f1 --json --pairs ", pairs));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("0.5"));
  const Outcome unknown = Run(StrCat("score --metric qa_f2 --pairs ", pairs));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("qa_f1"));
}

TEST_F(ScoreTest, LemmasNeedTheFilesOfNltkAndNameThem) {
  const std::string pairs =
      Write("pairs.jsonl",
            "{\"prediction\": \"The dogs ran\", \"answers\": [\"dog run\"], \"kind\": \"DB\"}\n");
  const std::string command = StrCat("score --metric wups_nextqa --json --pairs ", pairs);
  const std::string golden = KVG_TEST_DATA "/golden/metrics";
  setenv("KVGAUGE_WORDNET", (golden + "/wordnet").c_str(), 1);
  unsetenv("KVGAUGE_NLTK");
  const Outcome words = Run(command);
  ASSERT_EQ(words.exit_code, 0) << words.err;
  const Json by_words = *ParseJson(words.out, "score");
  EXPECT_EQ(by_words["mean"], 0.0);
  EXPECT_FALSE(by_words.contains("basis"));

  setenv("KVGAUGE_NLTK", (golden + "/nltk").c_str(), 1);
  const Outcome lemmas = Run(command), table = Run("score --metric wups_nextqa --pairs " + pairs);
  setenv("KVGAUGE_NLTK", golden.c_str(), 1);
  const Outcome wrong = Run(command);
  unsetenv("KVGAUGE_NLTK");
  unsetenv("KVGAUGE_WORDNET");
  ASSERT_EQ(lemmas.exit_code, 0) << lemmas.err;
  const Json by_lemmas = *ParseJson(lemmas.out, "score");
  EXPECT_EQ(by_lemmas["mean"], 1.0);
  EXPECT_THAT(by_lemmas["basis"], ContainsRegex("^lemmas by NLTK's files, sha256 [0-9a-f]{16}$"));
  EXPECT_THAT(table.out, HasSubstr("lemmas by NLTK's files, sha256 "));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("KVGAUGE_NLTK: "), HasSubstr("is not there"),
                               HasSubstr("scripts/fetch_data nltk")));
}

TEST_F(ScoreTest, ScoresAsATaskDoes) {
  const std::string pairs = Write(
      "pairs.jsonl",
      R"({"pred": "\nred\nQ: x", "answers": ["red"], "all_classes": ["red", "blue"], "length": 10})"
      "\n"
      R"({"pred": "red or blue", "answers": ["red"], "all_classes": ["red", "blue"], "length": 9000})"
      "\n"
      R"({"pred": "blue", "answers": ["red"], "all_classes": ["red", "blue"], "length": 11})");
  const Outcome plain = Run(StrCat("score --task longbench/trec --json --pairs ", pairs));
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  const Json json = *ParseJson(plain.out, "score");
  EXPECT_EQ(json["metric"], "classification");
  EXPECT_EQ(json["mean"], 0.5);
  EXPECT_EQ(json["reported"], 50.0);
  const Outcome table = Run(StrCat("score --task longbench_e/trec --pairs ", pairs));
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("longbench_e/trec v1"));
  EXPECT_THAT(table.out, ::testing::ContainsRegex("length_bucket +8k\\+ +1 +50.00"));
  EXPECT_EQ(Run(StrCat("score --pairs ", pairs)).exit_code, 2);
  EXPECT_EQ(Run(StrCat("score --task longbench/trec --metric qa_f1 --pairs ", pairs)).exit_code, 2);
}

TEST_F(ScoreTest, AJudgeIsNeverAskedUnasked) {
  const std::string pairs = Write("pairs.jsonl", R"({"prediction": "x", "answers": ["y"]})");
  unsetenv("KVGAUGE_JUDGE_KEY");
  const Outcome keyless = Run(
      StrCat("score --metric judge --judge http://127.0.0.1:1 --judge-model m --pairs ", pairs));
  EXPECT_EQ(keyless.exit_code, 2);
  EXPECT_THAT(keyless.err, HasSubstr("nothing is sent"));
  setenv("KVGAUGE_JUDGE_KEY", "k", 1);
  const Outcome wrong =
      Run(StrCat("score --metric judge --judge ftp://127.0.0.1 --judge-model m --pairs ", pairs));
  unsetenv("KVGAUGE_JUDGE_KEY");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("expected http[s]://"));
}

TEST_F(ScoreTest, ATaskOfAJudgeIsGradedByOne) {
  std::filesystem::create_directories(Path("loogle"));
  Write("loogle/longdep_qa.jsonl",
        R"({"input": "Text.", "qa_pairs": "[{'Q': 'Who?', 'A': 'Bo', 'S': [], 'type': 1}]"})");
  const auto state = [&](const std::string& data) {
    const Outcome listed = Run(StrCat("tasks --data '", data, "'"));
    const size_t at = listed.out.find("loogle/longdep_qa_judge ");
    return at == std::string::npos ? "" : listed.out.substr(at, listed.out.find('\n', at) - at);
  };
  EXPECT_THAT(state(directory_), HasSubstr("needs a judge"));
  EXPECT_THAT(state(Path("nowhere")), HasSubstr("data missing"));
  LocalServer server({JudgeReply("8 6\nThe second leaves out a name.")});
  const std::string pairs =
      Write("pairs.jsonl", R"({"prediction": "Al", "answers": ["Bo"], "question": "Who?"})");
  setenv("KVGAUGE_JUDGE_KEY", "secret", 1);
  const Outcome graded = Run(StrCat("score --task loogle/longdep_qa_judge --json --judge ",
                                    server.Url(), " --judge-model grader --pairs ", pairs));
  unsetenv("KVGAUGE_JUDGE_KEY");
  ASSERT_EQ(graded.exit_code, 0) << graded.err;
  const Json json = *ParseJson(graded.out, "score");
  EXPECT_EQ(json["relative_score"], 0.75);
  EXPECT_EQ(json["judge_model"], "grader");
  ASSERT_EQ(server.Requests().size(), 1u);
  EXPECT_THAT(server.Requests()[0], HasSubstr("Authorization: Bearer secret"));
  EXPECT_THAT(server.Requests()[0], HasSubstr("Who?"));
}

TEST_F(ScoreTest, GradesAreKeptWhenAJudgeFails) {
  const std::string pairs = Write("pairs.jsonl", R"({"prediction": "x", "answers": ["y"]})"
                                                 "\n"
                                                 R"({"prediction": "z", "answers": ["y"]})");
  setenv("KVGAUGE_JUDGE_KEY", "secret", 1);
  const auto judged = [&](LocalServer& server) {
    return Run(StrCat("score --metric judge --judge ", server.Url(), " --judge-model m --grades ",
                      Path("grades.jsonl"), " --pairs ", pairs));
  };
  LocalServer failing({JudgeReply("8 6"), "HTTP/1.1 400 x\r\nContent-Length: 0\r\n\r\n"});
  const Outcome first = judged(failing);
  EXPECT_EQ(first.exit_code, 1);
  EXPECT_THAT(first.out, ContainsRegex("1 +8.0 +6.0"));
  EXPECT_THAT(first.err, AllOf(HasSubstr("status 400"), HasSubstr("goes on from")));
  LocalServer server({JudgeReply("8 2")});
  const Outcome second = judged(server);
  unsetenv("KVGAUGE_JUDGE_KEY");
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.out, ContainsRegex("relative score +50.0"));
  EXPECT_EQ(server.Requests().size(), 1u);
}

TEST_F(ScoreTest, RunsPredictionsOnlyWhenAsked) {
  const std::string pairs =
      Write("programs.jsonl", R"({"prediction": "x=2", "answers": ["[ $x = 2 ]"]})");
  const Outcome unasked = Run(StrCat("score --metric pass_at_k --pairs ", pairs));
  EXPECT_EQ(unasked.exit_code, 2);
  EXPECT_THAT(unasked.err, HasSubstr("nothing is run unasked"));
  const Outcome asked =
      Run(StrCat("score --metric pass_at_k --execute sh --unisolated --pairs ", pairs));
  ASSERT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_THAT(asked.out, HasSubstr("1.000000 over 1 problems"));
}

TEST_F(ScoreTest, AProgramThatExitsEarlyHasNotPassed) {
  const std::string pairs =
      Write("programs.jsonl", R"({"id": "a", "prediction": "x=2", "answers": ["[ $x = 2 ]"]})"
                              "\n"
                              R"({"id": "a", "prediction": "exit 0", "answers": ["[ $x = 2 ]"]})"
                              "\n"
                              R"({"id": "b", "prediction": "exit 0", "answers": ["[ $x = 2 ]"]})");
  const Outcome outcome =
      Run(StrCat("score --metric pass_at_k --execute sh --k 1,2 --unisolated --pairs ", pairs));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(ContainsRegex("pass@1 +0.250000 over 2 problems"),
                                 ContainsRegex("pass@2 +1.000000 over 1 problems")));
  EXPECT_THAT(outcome.err, HasSubstr("pass@2 leaves out 1 of 2 problems"));
}

TEST_F(ScoreTest, FlagsOfAnotherMetricAreRefused) {
  const std::string pairs = Write("pairs.jsonl", R"({"prediction": "x", "answers": ["x"]})");
  for (const char* flag : {"--execute sh", "--k 1", "--timeout 3", "--unisolated"}) {
    const Outcome outcome = Run(StrCat("score --metric qa_f1 ", flag, " --pairs ", pairs));
    EXPECT_EQ(outcome.exit_code, 2) << flag;
    EXPECT_THAT(outcome.err, HasSubstr(std::string(flag).substr(0, std::string(flag).find(' '))))
        << flag;
    EXPECT_THAT(outcome.err, HasSubstr("is for pass_at_k; --metric qa_f1 has no use for it"));
  }
  EXPECT_THAT(Run(StrCat("score --metric qa_f1 --judge-model m --pairs ", pairs)).err,
              HasSubstr("--judge-model is for judge"));
  EXPECT_THAT(Run(StrCat("score --metric pass_at_k --execute sh --by x --pairs ", pairs)).err,
              HasSubstr("--by: --metric pass_at_k has no scores by groups"));
}

// MLVU's two averages: of accuracies, each task once, and of summed grades.
TEST_F(ScoreTest, AveragesOverTasks) {
  const std::string choices =
      Write("choices.jsonl", R"({"prediction": "A", "answers": ["A"], "task_type": "order"})"
                             "\n"
                             R"({"prediction": "B", "answers": ["A"], "task_type": "order"})"
                             "\n"
                             R"({"prediction": "C", "answers": ["C"], "task_type": "count"})");
  Outcome outcome = Run(StrCat("score --metric accuracy --by task_type --pairs ", choices));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, ContainsRegex("task_type +\\(mean of these\\) +0.750000"));
  outcome = Run(StrCat("score --metric accuracy --json --by task_type --pairs ", choices));
  EXPECT_EQ((*ParseJson(outcome.out, "score"))["mean_of_groups"]["task_type"], 0.75);

  const std::string grades =
      Write("grades.jsonl",
            R"({"grades": [3, 4], "task_type": "sub_scene"})"
            "\n"
            R"({"pred": "{'score_accuracy': 5, 'score_relevance': 5}", "task_type": "sub_scene"})"
            "\n"
            R"({"prediction": "2, 3.", "task_type": "summary"})");
  outcome = Run(StrCat("score --metric g_avg --by task_type --pairs ", grades));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(ContainsRegex("task_type +sub_scene +2 +8.5000"),
                                 ContainsRegex("G-Avg, of 2 to 10 +6.7500"),
                                 ContainsRegex("as a grade of 1 to 5 +3.3750")));
  outcome = Run(StrCat("score --metric g_avg --json --by task_type --pairs ", grades));
  const Json json = *ParseJson(outcome.out, "score");
  EXPECT_EQ(json["g_avg"], 6.75);
  EXPECT_EQ(json["groups"][1]["mean_of_sums"], 5.0);
  EXPECT_EQ(json["scores"][1]["grades"], Json({5.0, 5.0}));
  outcome = Run(StrCat("score --metric g_avg --pairs ", grades));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("name with one --by the key"));
}

TEST_F(ScoreTest, WhatIsNoMetricOrNoFileIsTold) {
  const std::string pairs = Write("pairs.jsonl", R"({"prediction": "x", "answers": ["x"]})");
  const Outcome average = Run(StrCat("score --metric m_avg --pairs ", pairs));
  EXPECT_EQ(average.exit_code, 2);
  EXPECT_THAT(average.err, HasSubstr("--metric accuracy with --by KEY"));
  const Outcome folder = Run(StrCat("score --metric qa_f1 --pairs ", directory_));
  EXPECT_EQ(folder.exit_code, 2);
  EXPECT_THAT(folder.err, HasSubstr("is a directory; name a file of JSON lines"));
}

TEST_F(ScoreTest, ListsMetrics) {
  const Outcome outcome = Run("score --list");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(ContainsRegex("\nsacrebleu_corpus +.*nrefs:var.case:mixed.eff:no"),
                                 HasSubstr("\npass_at_k "), HasSubstr("\ng_avg ")));
  EXPECT_THAT(Run("score --metric qa_f1").err, HasSubstr("with --pairs"));
}

// Each is refused with its line, before a number is printed; with --skip-bad it is left out.
TEST_F(ScoreTest, BadLinesAreNamed) {
  const std::string good = R"({"prediction": "x", "answers": ["x"]})";
  for (const auto& [line, told] : std::initializer_list<std::pair<std::string, const char*>>{
           {R"({"prediction": "x", "answers": []})", "\"answers\" is empty"},
           {R"({"prediction": "x", "label": []})", "\"label\" is empty"},
           {R"({"prediction": 3, "answers": ["x"]})", "must be a text, not number"},
           {R"({"predicton": "x", "answers": ["x"]})", "did you mean 'predicton'?"},
           {R"({"prediction": "x", "answers": ["x")", "not valid JSON at column 36"},
           {"{\"prediction\": \"\xff\", \"answers\": [\"x\"]}", "not UTF-8 at column 17"},
           {std::string(200, '['), "is nested"},
           {"[]", "must be an object"}}) {
    const std::string pairs = Write("pairs.jsonl", StrCat(good, "\n", line, "\n", good, "\n"));
    const Outcome refused = Run(StrCat("score --metric qa_f1 --pairs ", pairs));
    EXPECT_EQ(refused.exit_code, 2) << line;
    EXPECT_EQ(refused.out, "") << line;
    EXPECT_THAT(refused.err, HasSubstr("pairs.jsonl:2")) << line;
    if (line[0] == '{') {
      EXPECT_THAT(refused.err, HasSubstr(told));
    }
    const Outcome skipped = Run(StrCat("score --metric qa_f1 --skip-bad --json --pairs ", pairs));
    ASSERT_EQ(skipped.exit_code, 0) << skipped.err;
    const Json json = *ParseJson(skipped.out, "score");
    EXPECT_EQ(json["skipped"], 1) << line;
    EXPECT_EQ(json["mean"], 1.0) << line;
  }
}

TEST_F(ScoreTest, WrongNamesAndNumbersAreTold) {
  EXPECT_THAT(Run("sample longbench").err,
              HasSubstr("'longbench' is the name of 21 tasks together; "
                        "name one, such as longbench/2wikimqa"));
  EXPECT_THAT(Run("sample longbnch/qasper").err, HasSubstr("did you mean 'longbench/qasper'?"));
  for (const char* wrong : {"sample needle/single --n 0", "sample needle/single --n -1"}) {
    const Outcome outcome = Run(wrong);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, ContainsRegex("^--n: Value -?[01], expected a whole number from 1\n"));
  }
}

// Where scripts/fetch_data puts files is where they are looked for.
TEST_F(ScoreTest, DataHasADefaultPlace) {
  unsetenv("KVGAUGE_DATA");
  std::filesystem::create_directories(Path("home"));
  std::filesystem::create_directory_symlink(StrCat(KVG_SOURCE_DIR, "/configs"),
                                            Path("home/configs"));
  setenv("KVGAUGE_HOME", Path("home").c_str(), 1);
  const std::string place = Path("home/data");
  const Outcome listed = Run("tasks longbench/qasper");
  EXPECT_THAT(listed.out, AllOf(HasSubstr("longbench/qasper.jsonl; scripts/fetch_data longbench\n"),
                                HasSubstr(StrCat("Data files were looked for in ", place, ";"))));
  EXPECT_EQ((*ParseJson(Run("tasks longbench/qasper --json").out, "tasks"))[0]["data_directory"],
            place);
  EXPECT_THAT(Run("sample longbench/qasper").err,
              HasSubstr(StrCat(place, "/longbench/qasper.jsonl not found; get it with")));
  std::filesystem::create_directories(Path("home/data/longbench"));
  Write("home/data/longbench/qasper.jsonl",
        R"({"input": "Who?", "context": "A text.", "answers": ["me"], "length": 3, )"
        R"("dataset": "qasper", "language": "en", "all_classes": null, "_id": "1"})");
  EXPECT_THAT(Run("tasks longbench/qasper").out, HasSubstr("ready"));
  const Outcome sample = Run("sample longbench/qasper");
  unsetenv("KVGAUGE_HOME");
  EXPECT_EQ(sample.exit_code, 0) << sample.err;
  EXPECT_THAT(sample.out, HasSubstr("Article: A text."));
}

// With a model the prompt is the one that a run feeds it: template and special tokens included.
TEST_F(ScoreTest, SamplesAreShownAsTheModelIsGivenThem) {
  const std::string task =
      "sample needle/single --set source.lengths=512 --set source.depths=50 --set source.repeats=2";
  const std::string model = StrCat(" --model '", KVG_SOURCE_DIR, "/models/ref-gqa'");
  const Outcome plain = Run(task + " --n 5");
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  // The tokens there are, and those that were asked for.
  EXPECT_THAT(plain.out,
              AllOf(ContainsRegex("\nlength +51[12]\n"), ContainsRegex("\ndepth +50\n")));
  EXPECT_THAT(Run(task + " --set source.lengths=513 --set source.reserve_tokens=5").out,
              AllOf(ContainsRegex("\nlength +50[78]\n"), ContainsRegex("\nfact length +513\n")));
  EXPECT_THAT(plain.out, AllOf(HasSubstr("n512-d50-r1\n"), Not(HasSubstr("-r2")),
                               HasSubstr("yes; shown without, --model DIR adds it"),
                               HasSubstr("--- question (at most 50 new tokens)\n")));
  const Outcome shown = Run(task + model + " --template llama3");
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out,
              AllOf(ContainsRegex("chat template +llama3\n"),
                    ContainsRegex("--- prompt \\([0-9]+ tokens; at most 50 new tokens\\)\n"),
                    HasSubstr("user<|end_header_id|>"), HasSubstr(" bytes ...]\n")));
  const Outcome whole = Run(task + model + " --template llama3 --whole");
  EXPECT_THAT(whole.out, Not(HasSubstr(" bytes ...]\n")));
  const Json sample = *ParseJson(Run(task + model + " --template llama3 --json").out, "sample");
  EXPECT_EQ(sample["template"], "llama3");
  const std::string context = sample["context"], question = sample["questions"][0]["text"];
  const std::string text = sample["prompts"][0]["text"];
  EXPECT_THAT(text, HasSubstr(context + question));
  EXPECT_THAT(whole.out, HasSubstr(text));
  EXPECT_GT(sample["prompts"][0]["tokens"], sample["length"]);
  // The marks say where what is.
  std::map<std::string, std::string> marked;
  for (const Json& mark : sample["marks"]) {
    const std::string& of = mark.contains("question") ? question : context;
    marked[mark["kind"]] =
        of.substr(mark["begin"], mark["end"].get<size_t>() - mark["begin"].get<size_t>());
  }
  EXPECT_THAT(marked["needle"], HasSubstr("eat a sandwich"));
  EXPECT_THAT(marked["context"], HasSubstr(marked["needle"]));
  EXPECT_EQ(marked["question"], question);

  // A task file may say who answers.
  Write("terse.json", R"({"name": "terse", "version": 1, "group": "own", "description": "d",
    "metric": "qa_f1", "max_new_tokens": 8, "system": "Answer in one word.",
    "source": {"name": "list_ops", "samples": 1, "least_size": 5, "most_size": 50}})");
  const std::string terse = StrCat("sample '", Path("terse.json"), "'");
  EXPECT_THAT(Run(terse).out, HasSubstr("--- system\nAnswer in one word.\n--- context\n"));
  const Json said = *ParseJson(Run(terse + model + " --template llama3 --json").out, "sample");
  EXPECT_EQ(said["system"], "Answer in one word.");
  EXPECT_EQ(said["marks"].back(), (Json{{"kind", "system"}, {"begin", 0}, {"end", 19}}));
  EXPECT_THAT(said["prompts"][0]["text"].get<std::string>(),
              HasSubstr("system<|end_header_id|>\n\nAnswer in one word.<|eot_id|>"));
  EXPECT_THAT(Run(terse + model + " --template llama3").out, ContainsRegex("system +19 bytes\n"));

  for (const auto& [set, told] : std::initializer_list<std::pair<std::string, std::string>>{
           {"lengths=512", "--set 'lengths=512': must be source.param=value"},
           {"source.lenghts=512", "did you mean 'lengths'?"},
           {"source.snap=maybe", "snap"}}) {
    const Outcome refused = Run("sample needle/single --set " + set);
    EXPECT_EQ(refused.exit_code, 2) << set;
    EXPECT_THAT(refused.err, HasSubstr(told));
  }
  EXPECT_THAT(Run("sample ./nope.json").err,
              HasSubstr("./nope.json: there is no such task file; it was looked for in /"));
}

TEST_F(ScoreTest, SamplesSayWhatWasLeftOut) {
  std::filesystem::create_directories(Path("ruler"));
  const auto qa = [](const char* answer) {
    return StrCat(R"({"question": "Who?", "is_impossible": false, "answers": [)", answer, "]}");
  };
  Write("ruler/dev-v2.0.json",
        StrCat(R"({"data": [{"paragraphs": [{"context": "Bo did it.", "qas": [)", qa(""), ", ",
               qa(R"({"text": "Bo"})"), "]}]}]}"));
  const std::string sample = StrCat("sample ruler/qa_1 --data '", directory_, "'");
  const std::string fault = "dev-v2.0.json: data[0].paragraphs[0].qas[0]: field 'answers' has no";
  EXPECT_THAT(Run(sample).err, HasSubstr(fault));
  for (const char* format : {"", " --json"}) {
    const Outcome outcome = Run(StrCat(sample, " --skip-bad", format));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("Bo did it."));
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(StrCat("left out: ", directory_, "/ruler/", fault)),
                                   HasSubstr("malformed records left out: 1")));
  }
}

TEST_F(ScoreTest, ADirectoryOfTextsIsData) {
  const auto state = [&] {
    const Outcome listed = Run(StrCat("tasks needle/essays --data '", directory_, "'"));
    EXPECT_EQ(listed.exit_code, 0) << listed.err;
    return listed.out;
  };
  const std::string fetch = StrCat("scripts/fetch_data --data ", directory_, " essays");
  EXPECT_THAT(state(), HasSubstr(StrCat("data missing  essays; ", fetch)));
  const std::string sample = StrCat("sample needle/essays --data '", directory_, "'");
  EXPECT_THAT(Run(sample).err,
              HasSubstr(StrCat(directory_, "/essays not found; get it with: ", fetch)));
  std::filesystem::create_directory(Path("essays"));
  EXPECT_THAT(state(), HasSubstr(StrCat("data missing  essays/*.txt; ", fetch)));
  EXPECT_THAT(Run(sample).err, HasSubstr(StrCat(directory_, "/essays/*.txt not found; get it")));
  Write("essays/a.txt", "One. Two.");
  EXPECT_THAT(state(), HasSubstr("ready"));
  EXPECT_THAT(Run(sample).out, HasSubstr("One. Two.\nOne. Two."));
}

}  // namespace
}  // namespace kvgauge
