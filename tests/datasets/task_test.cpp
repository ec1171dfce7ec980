// SPDX-License-Identifier: Apache-2.0
// Task files, post-processing and the hash of a sample.
#include "datasets/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "datasets/metric.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kTasks = std::string(KVG_SOURCE_DIR) + "/configs/tasks";

Json GoodTask() {
  return {{"name", "sample/one"},
          {"version", 1},
          {"group", "sample"},
          {"description", "a task"},
          {"metric", "qa_f1"},
          {"max_new_tokens", 8},
          {"source",
           {{"name", "jsonl"},
            {"file", "sample/one.jsonl"},
            {"context", "{text}"},
            {"answers", "answer"}}}};
}

class TaskFile : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(::testing::TempDir()) / std::to_string(getpid()) /
                 ("task_file_" +
                  std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_ / "sample");
  }
  void TearDown() override { std::filesystem::remove_all(directory_.parent_path()); }

  std::string Write(const std::string& name, const std::string& content) {
    const std::string path = (directory_ / name).string();
    std::ofstream(path) << content;
    return path;
  }
  std::string ErrorOf(const Json& task) {
    const Result<Task> read = ReadTask(Write("task.json", task.dump()));
    return read.ok() ? "" : read.error().message;
  }

  std::filesystem::path directory_;
};

TEST_F(TaskFile, IsReadWhole) {
  Json json = GoodTask();
  json["citation"] = "someone, somewhere";
  json["post"] = {{"skip_newlines", true}, {"first_line", true}, {"cut_at", {"Q:"}}};
  json["stop"] = {{"last_token_of", {"\n"}}, {"texts", {"Q:"}}, {"min_new_tokens", 1}};
  const Result<Task> task = ReadTask(Write("task.json", json.dump()));
  ASSERT_TRUE(task.ok()) << task.error().message;
  EXPECT_EQ(task->name, "sample/one");
  EXPECT_EQ(task->version, 1);
  EXPECT_EQ(task->citation, "someone, somewhere");
  EXPECT_EQ(task->max_new_tokens, 8);
  EXPECT_TRUE(task->post.skip_newlines);
  EXPECT_TRUE(task->post.first_line);
  EXPECT_FALSE(task->post.strip);
  EXPECT_THAT(task->post.cut_at, ElementsAre("Q:"));
  EXPECT_THAT(task->stop.last_token_of, ElementsAre("\n"));
  EXPECT_THAT(task->stop.texts, ElementsAre("Q:"));
  EXPECT_EQ(task->stop.min_new_tokens, 1);
  EXPECT_EQ(task->source, "jsonl");
  EXPECT_EQ(task->source_params.Text("file"), "sample/one.jsonl");
  EXPECT_EQ(*task->json, json);
}

TEST_F(TaskFile, FaultsNameKeyValueAndRemedy) {
  const auto with = [](const std::string& pointer, const Json& value) {
    Json json = GoodTask();
    json[Json::json_pointer(pointer)] = value;
    return json;
  };
  const auto without = [](const std::string& key) {
    Json json = GoodTask();
    json.erase(key);
    return json;
  };
  EXPECT_EQ(ErrorOf(GoodTask()), "");
  EXPECT_THAT(ErrorOf(with("/max_new_token", 3)),
              AllOf(HasSubstr("task.json: max_new_token: unknown key"),
                    HasSubstr("did you mean 'max_new_tokens'?")));
  EXPECT_THAT(ErrorOf(with("/post", {{"fist_line", true}})),
              AllOf(HasSubstr("post.fist_line"), HasSubstr("'first_line'")));
  EXPECT_THAT(ErrorOf(with("/post", {{"extract", "longbench2"}})),
              AllOf(HasSubstr("post.extract"), HasSubstr("'longbench_v2'")));
  EXPECT_THAT(ErrorOf(with("/stop", {{"text", {"x"}}})),
              AllOf(HasSubstr("stop.text"), HasSubstr("'texts'")));
  EXPECT_THAT(ErrorOf(with("/stop", {{"texts", {""}}})), HasSubstr("none of them empty"));
  EXPECT_THAT(ErrorOf(with("/source/answer", "x")),
              AllOf(HasSubstr("source: unknown parameter 'answer'"), HasSubstr("'answers'")));
  EXPECT_THAT(ErrorOf(with("/source/name", "jsonlines")), HasSubstr("unknown source"));
  EXPECT_THAT(ErrorOf(with("/source/context", "{text")), HasSubstr("source.context: '{text'"));
  EXPECT_THAT(ErrorOf(with("/source/document", "txt")), HasSubstr("source.document: 'txt'"));
  EXPECT_THAT(ErrorOf(with("/source/answer_kind", "index0")), HasSubstr("needs .choices"));
  EXPECT_THAT(ErrorOf(with("/version", 0)), HasSubstr("version: '0'; expected a whole number"));
  EXPECT_THAT(ErrorOf(with("/version", 1.5)), HasSubstr("version: '1.5'"));
  EXPECT_THAT(ErrorOf(with("/max_new_tokens", 18446744073709551615ULL)),
              HasSubstr("max_new_tokens: '18446744073709551615'"));
  EXPECT_THAT(ErrorOf(with("/name", "Upper Case")), HasSubstr("lower-case"));
  EXPECT_THAT(ErrorOf(with("/name", 3)), HasSubstr("name: '3'; expected a string"));
  for (const char* key :
       {"name", "version", "group", "description", "metric", "max_new_tokens", "source"}) {
    EXPECT_THAT(ErrorOf(without(key)), HasSubstr(std::string(key) + ": missing")) << key;
  }
  EXPECT_THAT(ReadTask(Write("bad.json", "[1]")).error().message, HasSubstr("JSON object"));
  EXPECT_THAT(ReadTask(Write("bad.json", "{")).error().message, HasSubstr("not valid JSON"));
  if (!ListMetrics().empty()) {
    EXPECT_THAT(ErrorOf(with("/metric", "qa_f2")),
                AllOf(HasSubstr("unknown metric 'qa_f2'"), HasSubstr("qa_f1")));
    EXPECT_EQ(ErrorOf(with("/metric", std::string(kJudgeMetric))), "");
  }
}

TEST_F(TaskFile, SystemTextIsMarkedAndHashed) {
  Write("sample/one.jsonl", R"({"text": "A", "answer": "a"})");
  const auto first = [&](const Json& json) {
    const Result<Task> task = ReadTask(Write("task.json", json.dump()));
    EXPECT_TRUE(task.ok()) << task.error().message;
    TaskOptions options;
    options.data_directory = directory_.string();
    const auto stream = OpenTask(*task, options);
    EXPECT_TRUE(stream.ok()) << stream.error().message;
    return **(*stream)->Next();
  };
  Json json = GoodTask();
  const Sample without = first(json);
  // What samples without a system text hashed to before there were any.
  EXPECT_EQ(without.hash, "b7239b5168293bb86191f9a77d10d8c3820aa8fbd4cc00a84360f448d29016e1");
  EXPECT_EQ(without.system, "");
  json["system"] = "Be terse.";
  const Sample with = first(json);
  EXPECT_EQ(with.system, "Be terse.");
  EXPECT_NE(with.hash, without.hash);
  EXPECT_EQ(with.id, without.id);
  EXPECT_EQ(with.marks.size(), without.marks.size() + 1);
  EXPECT_EQ(with.marks.back().kind, MarkKind::kSystem);
  EXPECT_EQ(with.marks.back().end, 9);
  Sample again = with;
  FinishSample(again);
  EXPECT_EQ(again.marks.size(), with.marks.size());
  json["system"] = "Be long.";
  EXPECT_NE(first(json).hash, with.hash);
  json["system"] = " \n";
  EXPECT_THAT(ErrorOf(json), HasSubstr("task.json: system: "));
  json["system"] = "Be terse.";
  json["metric"] = "perplexity";
  EXPECT_THAT(ErrorOf(json), HasSubstr("perplexity is that of the text alone"));
}

TEST_F(TaskFile, NamesAreUniqueInADirectory) {
  Json json = GoodTask();
  Write("b.json", json.dump());
  json["name"] = "another";
  Write("sample/c.json", json.dump());
  Write("notes.txt", "not a task");
  const Result<std::vector<Task>> tasks = ReadTasks(directory_.string());
  ASSERT_TRUE(tasks.ok()) << tasks.error().message;
  ASSERT_EQ(tasks->size(), 2u);
  EXPECT_EQ((*tasks)[0].name, "another");
  EXPECT_EQ((*tasks)[1].name, "sample/one");

  Write("sample/d.json", GoodTask().dump());
  EXPECT_THAT(ReadTasks(directory_.string()).error().message,
              AllOf(HasSubstr("d.json"), HasSubstr("b.json"), HasSubstr("'sample/one'")));
  EXPECT_THAT(ReadTasks("/nowhere/at/all").error().message, HasSubstr("cannot list"));
}

TEST_F(TaskFile, MissingDataSaysHowToGetIt) {
  const Result<Task> task = ReadTask(Write("task.json", GoodTask().dump()));
  ASSERT_TRUE(task.ok()) << task.error().message;
  EXPECT_THAT(MissingFiles(*task, directory_.string()), ElementsAre("sample/one.jsonl"));
  EXPECT_THAT(MissingFiles(*task, ""), ElementsAre("sample/one.jsonl"));
  TaskOptions options;
  EXPECT_THAT(OpenTask(*task, options).error().message, HasSubstr("--data DIR"));
  options.data_directory = directory_.string();
  EXPECT_EQ(
      OpenTask(*task, options).error().message,
      StrCat("task 'sample/one': ", directory_.string(), "/sample/one.jsonl not found; put it ",
             "there, or name another directory with --data DIR or KVGAUGE_DATA"));
  Write("sample/one.jsonl", R"({"text": "x", "answer": "y"})");
  EXPECT_THAT(MissingFiles(*task, directory_.string()), IsEmpty());
  EXPECT_TRUE(OpenTask(*task, options).ok());
}

// Only sets that scripts/fetch_data knows are named with it.
TEST(FetchCommand, IsOneThatWorks) {
  EXPECT_EQ(FetchCommand("longbench/qasper.jsonl", ""), "scripts/fetch_data longbench");
  EXPECT_EQ(FetchCommand("essays/*.txt", "/d/e_1.x-y"),
            "scripts/fetch_data --data /d/e_1.x-y essays");
  EXPECT_EQ(FetchCommand("gsm8k/test.jsonl", "/my data"),
            "scripts/fetch_data --data '/my data' gsm8k");
  for (const char* own : {"mine.jsonl", "longbench", "long/qasper.jsonl", "name/x", ""}) {
    EXPECT_EQ(FetchCommand(own, "") == "", std::string(own) != "longbench") << own;
  }
}

TEST_F(TaskFile, LimitEndsTheStream) {
  Write("sample/one.jsonl",
        "{\"text\": \"x\", \"answer\": \"y\"}\n{\"text\": \"x\", "
        "\"answer\": \"z\"}\n{\"text\": \"x\", \"answer\": \"y\"}\n");
  const Result<Task> task = ReadTask(Write("task.json", GoodTask().dump()));
  ASSERT_TRUE(task.ok());
  for (const auto& [limit, expected] : {std::pair{-1, 3}, {0, 0}, {2, 2}, {9, 3}}) {
    TaskOptions options;
    options.data_directory = directory_.string();
    options.limit = limit;
    auto stream = OpenTask(*task, options);
    ASSERT_TRUE(stream.ok());
    int count = 0;
    while (true) {
      const auto sample = (*stream)->Next();
      ASSERT_TRUE(sample.ok()) << sample.error().message;
      if (!*sample) break;
      EXPECT_EQ((*sample)->hash.size(), 64u);
      ++count;
    }
    EXPECT_EQ(count, expected);
  }
}

TEST(ShippedTasks, AreAllValid) {
  const Result<std::vector<Task>> tasks = ReadTasks(kTasks);
  ASSERT_TRUE(tasks.ok()) << tasks.error().message;
  std::vector<std::string> e, v1;
  for (const Task& task : *tasks) {
    if (task.group == "longbench") v1.push_back(task.name);
    if (task.group == "longbench_e") e.push_back(task.name);
    for (const std::string& file : MissingFiles(task, "")) {
      // A file in a folder of its set, or a folder of texts.
      EXPECT_TRUE(file.find('/') != std::string::npos || task.source == "needle") << task.name;
    }
  }
  EXPECT_EQ(v1.size(), 21u);
  EXPECT_EQ(e.size(), 13u);
}

// Every group of tasks stands in docs/datasets.md, with as many tasks as there are.
TEST(ShippedTasks, AreInTheDocs) {
  const Result<std::string> docs = ReadFile(StrCat(KVG_SOURCE_DIR, "/docs/datasets.md"));
  ASSERT_TRUE(docs.ok()) << docs.error().message;
  const Result<std::vector<Task>> tasks = ReadTasks(kTasks);
  ASSERT_TRUE(tasks.ok()) << tasks.error().message;
  std::map<std::string, int> groups;
  for (const Task& task : *tasks) ++groups[task.name.substr(0, task.name.find('/'))];
  for (const auto& [group, count] : groups) {
    const std::string quoted = StrCat("`", group, "`");
    const size_t at = docs->find(quoted);
    ASSERT_NE(at, std::string::npos) << group;
    // "`leval`: 21", "`bamboo`: 10 x 2", "`loogle`: 5, and 2"; some are named one by one.
    const char* counted = docs->c_str() + at + quoted.size();
    int first = 0, second = 0;
    if (std::sscanf(counted, ": %d x %d", &first, &second) == 2) {
      first *= second;
    } else if (std::sscanf(counted, ": %d, and %d", &first, &second) == 2) {
      first += second;
    }
    if (first > 0) {
      EXPECT_EQ(first, count) << group;
    }
  }
  EXPECT_GT(groups.size(), 20u);
}

std::string Post(PostProcessing post, const std::string& text) { return PostProcess(post, text); }

TEST(PostProcess, KeepsTheOrder) {
  EXPECT_EQ(Post({}, " \n a\nb "), " \n a\nb ");
  // Newlines alone are dropped: a blank before them stays, and its line is then the first.
  EXPECT_EQ(Post({.skip_newlines = true, .first_line = true}, "\n\n  Date\nType: x"), "  Date");
  EXPECT_EQ(Post({.skip_newlines = true, .first_line = true}, " \nDate"), " ");
  EXPECT_EQ(Post({.first_line = true}, "\nDate"), "");
  EXPECT_EQ(Post({.skip_newlines = true}, "\n\n"), "");
  EXPECT_EQ(Post({.strip = true, .cut_at = {".", "Q:"}}, " yes Q: no. "), "yes");
  EXPECT_EQ(Post({.cut_at = {"Q:"}}, "yes Q: no"), "yes ");
  // Python's white space: ideographic and no-break spaces count, the byte order mark does not.
  EXPECT_EQ(Post({.strip = true}, "\u3000\u00a0 \x1c\u7b54 \u2003\u0085"), "\u7b54");
  EXPECT_EQ(Post({.strip = true}, "\ufeffa"), "\ufeffa");
  EXPECT_EQ(Post({.strip = true}, "\x80\x80"), "\x80\x80");
  EXPECT_EQ(Post({.strip = true}, ""), "");
}

TEST(PostProcess, LongBenchV2Letter) {
  const auto letter = [](const std::string& text) {
    return Post({.extract = "longbench_v2"}, text);
  };
  EXPECT_EQ(letter("**The correct answer is (B)**"), "B");
  EXPECT_EQ(letter("The correct answer is C because"), "C");
  EXPECT_EQ(letter("The correct answer is: D"), "");
  EXPECT_EQ(letter("the correct answer is (A)"), "");
  EXPECT_EQ(letter("The correct answer is A dog. The correct answer is (B)"), "B");
  EXPECT_EQ(letter("The correct answer is (E). The correct answer is (C)"), "C");
  EXPECT_EQ(letter("The correct answer is (A"), "");
  EXPECT_EQ(letter(""), "");
}

// scripts/goldens/make_boxed ran kvpress's graders.
TEST(PostProcess, BoxesAsKvpressTakesThem) {
  const auto cases = ReadJsonFile(StrCat(KVG_TEST_DATA, "/datasets/data/boxed.json"));
  ASSERT_TRUE(cases.ok()) << cases.error().message;
  ASSERT_GE(cases->size(), 100u);
  for (const Json& one : *cases) {
    const std::string text = one[0];
    const auto want = [](const Json& part) {
      return part.is_null() ? "" : part.get<std::string>();
    };
    EXPECT_EQ(Post({.extract = "boxed_first"}, text), want(one[1])) << text;
    EXPECT_EQ(Post({.extract = "boxed_last"}, text), want(one[2])) << text;
  }
}

TEST(PostProcess, Numbers) {
  const auto by = [](const std::string& rule, const std::string& text) {
    return Post({.extract = rule}, text);
  };
  EXPECT_EQ(by("gsm8k_strict", "She makes 9 * 2 = $18.\n#### 18"), "18");
  EXPECT_EQ(by("gsm8k_strict", "The answer is $1,234.50."), "");
  EXPECT_EQ(by("gsm8k_strict", "#### 1,000"), "1000");
  EXPECT_EQ(by("gsm8k_strict", "#### x #### -3"), "-3");
  EXPECT_EQ(by("last_number", "She makes 9 * 2 = $18.\n#### 18"), "18");
  EXPECT_EQ(by("last_number", "The answer is $1,234.50."), "1234.50");
  EXPECT_EQ(by("last_number", "so 3 + 4 = 7"), "7");
  EXPECT_EQ(by("last_number", "5 - 8 = -3 - x"), "-3");
  EXPECT_EQ(by("last_number", "none"), "");
  // LongEval's: what stands before the last digits does not count, and it compares numbers.
  for (const char* text : {"345", "REGISTER_CONTENT is <345>...", "12.. 345 ..", "line-345",
                           "12-345", "-345", "0345", "1.345", "1,345", "$345.", "the 7th: 345,",
                           "\u0663\u0664\u0665", "\U0001D7DB\U0001D7DC\U0001D7D3"}) {
    EXPECT_EQ(by("last_integer", text), "345") << text;
  }
  EXPECT_EQ(by("last_integer", "345 in line 7"), "7");
  EXPECT_EQ(by("last_integer", "000"), "0");
  EXPECT_EQ(by("last_integer", "none"), "");
  EXPECT_EQ(by("first_integer", "The pass key is 0123. Or 4"), "123");
  EXPECT_EQ(by("first_integer", "none"), "");
  EXPECT_EQ(by("gsm8k_cot", "So 2 + 3 = 5. The answer is 5."), "5");
  EXPECT_EQ(by("gsm8k_cot", "The answer is -1,250. And"), "-1250");
  // The pattern wants one more byte: without it, the number gives its last one back.
  EXPECT_EQ(by("gsm8k_cot", "The answer is 42"), "4");
  EXPECT_EQ(by("gsm8k_cot", "The answer is 4\n"), "");
  EXPECT_EQ(by("first_digits", "The pass key is 0123. Or 4"), "0123");
  EXPECT_EQ(by("first_digits", "none"), "");
  EXPECT_EQ(by("lone_letter", "Best: (C), not A"), "C");
  EXPECT_EQ(by("lone_letter", "BAD \u00c9A D1 A"), "A");
}

TEST(PostProcess, LEvalRules) {
  const auto by = [](const std::string& rule, const std::string& text) {
    return Post({.extract = rule}, text);
  };
  EXPECT_EQ(by("leval_letters", " \n"), "None");
  EXPECT_EQ(by("leval_letters", "BC"), "BC");
  EXPECT_EQ(by("leval_letters", "CAC rest"), "AC");
  EXPECT_EQ(by("leval_letters", "B) since"), "B");
  EXPECT_EQ(by("leval_letters", "A. one\nC. two\nQuestion: B."), "AC");
  EXPECT_EQ(by("leval_letters", "It is (D) or B."), "BD");
  EXPECT_EQ(by("leval_letters", "the CB-option"), "CB");
  EXPECT_EQ(by("leval_letters", "none"), "A");
  EXPECT_EQ(by("leval_letter", " "), "None");
  EXPECT_EQ(by("leval_letter", "option C, not A"), "C");
  EXPECT_EQ(by("leval_number", "The answer is 18 apples and 3"), "18");
  EXPECT_EQ(by("leval_number", "The answer is  5. The answer is $1,234.50"), "1234");
  EXPECT_EQ(by("leval_number", "so 7 of 9 x"), "9");
  EXPECT_EQ(by("leval_number", "2 3\n\n4"), "3");
  EXPECT_EQ(by("leval_truth", "Yes: it's True"), "true");
  EXPECT_EQ(by("leval_truth", "maybe"), "<error>");
  EXPECT_EQ(by("leval_truth", "hm [fact: True]"), "<error>");
  EXPECT_EQ(by("leval_loyalty", "True [fact: False]"), "true");
  EXPECT_EQ(by("leval_fact", "True [fact: False]"), "false");
}

TEST(PostProcess, OtherSuites) {
  const auto by = [](const std::string& rule, const std::string& text) {
    return Post({.extract = rule}, text);
  };
  EXPECT_EQ(by("scbench_sought", "Only a number. The largest number of the list is: "),
            "the largest number of the list");
  EXPECT_EQ(by("scbench_sought", "The\nThe is The X is"), "the is the x");
  EXPECT_EQ(by("scbench_sought", "What is it?"), "");
  EXPECT_EQ(by("m4le_headline", "It is \" a b\nc\" d"), "a b");
  EXPECT_EQ(by("m4le_headline", "\na"), "");
  EXPECT_EQ(by("m4le_headline", " a \nb"), "a");
  EXPECT_EQ(by("before_stop", "3. x"), "3");
  EXPECT_EQ(by("before_chinese_stop", "3\u3002x"), "3");
}

TEST(Marks, FollowFromTheSample) {
  Sample sample;
  sample.context = "A long text.";
  sample.questions = {{.text = "What?"}, {.text = " And then?"}};
  FinishSample(sample);
  const std::string hash = sample.hash;
  const auto kinds = [&] {
    std::vector<std::tuple<MarkKind, int64_t, int64_t, int64_t>> list;
    for (const Mark& mark : sample.marks) {
      list.emplace_back(mark.kind, mark.begin, mark.end, mark.question);
    }
    return list;
  };
  using Row = std::tuple<MarkKind, int64_t, int64_t, int64_t>;
  const Row whole = {MarkKind::kContext, 0, 12, -1};
  EXPECT_THAT(kinds(), ElementsAre(whole, Row{MarkKind::kQuestion, 0, 5, 0},
                                   Row{MarkKind::kQuestion, 0, 10, 1}));
  // What the source tells of the context stays, and marks never move the hash.
  sample.marks = {{MarkKind::kNeedle, 2, 6}, {MarkKind::kContext, 2, 11}};
  sample.mode = QuestionMode::kMultiTurn;
  FinishSample(sample);
  FinishSample(sample);
  EXPECT_THAT(kinds(),
              ElementsAre(Row{MarkKind::kNeedle, 2, 6, -1}, Row{MarkKind::kContext, 2, 11, -1},
                          Row{MarkKind::kTurn, 0, 5, 0}, Row{MarkKind::kTurn, 0, 10, 1}));
  sample.mode = QuestionMode::kSingle;
  FinishSample(sample);
  EXPECT_EQ(sample.hash, hash);
}

TEST(SampleHash, SeesWhatMovesAScore) {
  Sample base;
  base.id = "a";
  base.context = "text";
  base.questions = {{.text = "q", .answers = {"x", "y"}, .max_new_tokens = 3}};
  FinishSample(base);
  EXPECT_EQ(base.hash.size(), 64u);
  const auto changed = [&](auto change) {
    Sample other = base;
    change(other);
    FinishSample(other);
    return other.hash != base.hash;
  };
  EXPECT_TRUE(changed([](Sample& s) { s.context = "texts"; }));
  EXPECT_TRUE(changed([](Sample& s) { s.questions[0].answers = {"xy"}; }));
  EXPECT_TRUE(changed([](Sample& s) { s.questions[0].answers = {"xy", ""}; }));
  EXPECT_TRUE(changed([](Sample& s) { s.questions[0].answer_prefix = "p"; }));
  EXPECT_TRUE(changed([](Sample& s) { s.questions[0].max_new_tokens = 4; }));
  EXPECT_TRUE(changed([](Sample& s) { s.questions.push_back({}); }));
  EXPECT_TRUE(changed([](Sample& s) { s.mode = QuestionMode::kMultiTurn; }));
  EXPECT_TRUE(changed([](Sample& s) { s.chat_template = false; }));
  EXPECT_TRUE(changed([](Sample& s) { s.language = "zh"; }));
  EXPECT_FALSE(changed([](Sample& s) { s.id = "b"; }));
  EXPECT_FALSE(changed([](Sample& s) { s.group = "b"; }));
  EXPECT_FALSE(changed([](Sample& s) { s.facts = {{"a", "b"}}; }));
  EXPECT_FALSE(changed([](Sample& s) { s.length = 7; }));
}

}  // namespace
}  // namespace kvgauge
