// SPDX-License-Identifier: Apache-2.0
// Records of data files, and tasks declared over them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "core/json.h"
#include "datasets/sample_stream.h"
#include "datasets/task.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

const std::string kData = std::string(KVG_TEST_DATA) + "/datasets/data";

// By this process so far, from any file; 0 where the system does not count.
int64_t BytesRead() {
  std::ifstream counters("/proc/self/io");
  std::string name;
  int64_t value = 0;
  counters >> name >> value;
  return name == "rchar:" ? value : 0;
}

class Jsonl : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::path(::testing::TempDir()) / std::to_string(getpid()) /
        (std::string("jsonl_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_ / "set");
    source_ = {{"name", "jsonl"}, {"file", "set/x.jsonl"}, {"context", "{c}"}, {"answers", "a"}};
  }
  void TearDown() override { std::filesystem::remove_all(directory_.parent_path()); }

  Json MakeTaskJson() const {
    return {{"name", "t"},       {"version", 1},        {"group", "g"},     {"description", "d"},
            {"metric", "qa_f1"}, {"max_new_tokens", 5}, {"source", source_}};
  }
  Task MakeTask() {
    const std::string path = (directory_ / "task.json").string();
    std::ofstream(path) << MakeTaskJson().dump();
    Result<Task> task = ReadTask(path);
    EXPECT_TRUE(task.ok()) << task.error().message;
    return *std::move(task);
  }
  void WriteData(const std::string& content) {
    std::ofstream(directory_ / "set/x.jsonl", std::ios::binary) << content;
  }
  Result<std::vector<Sample>> Open(const std::string& content) {
    WriteData(content);
    TaskOptions options;
    options.data_directory = directory_.string();
    return ReadAll(MakeTask(), options);
  }
  std::string ErrorOf(const std::string& content) {
    const auto read = Open(content);
    return read.ok() ? "" : read.error().message;
  }
  // Ids of what is left, and how many were left out.
  std::pair<std::vector<std::string>, int64_t> Tolerant(const std::string& content) {
    WriteData(content);
    TaskOptions options;
    options.data_directory = directory_.string();
    options.skip_bad = true;
    const auto stream = OpenTask(MakeTask(), options);
    const auto samples = ReadAll(**stream);
    EXPECT_TRUE(samples.ok()) << samples.error().message;
    std::vector<std::string> ids;
    if (samples.ok()) {
      for (const Sample& sample : *samples) ids.push_back(sample.id);
    }
    return {ids, (*stream)->skipped()};
  }

  std::filesystem::path directory_;
  Json source_;
};

TEST_F(Jsonl, LinesMayEndAnyWay) {
  const auto samples = Open("{\"c\":\"1\",\"a\":\"x\"}\r\n\n  \n{\"c\":\"2\",\"a\":\"y\"}");
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  ASSERT_EQ(samples->size(), 2u);
  EXPECT_EQ((*samples)[0].id, "line-1");
  EXPECT_EQ((*samples)[1].id, "line-4");
  EXPECT_EQ((*samples)[1].context, "2");
}

TEST_F(Jsonl, FaultsNameLineAndColumn) {
  const std::string good = "{\"c\":\"1\",\"a\":\"x\"}\n";
  EXPECT_THAT(ErrorOf(good + "{\"c\":\"1\",\"a\" \"x\"}\n"),
              AllOf(HasSubstr("x.jsonl:2: column 16"), HasSubstr("not valid JSON")));
  EXPECT_THAT(ErrorOf(good + "\n{\"c\": \"ab\xff\"}\n"),
              HasSubstr("x.jsonl:3: column 10: not valid UTF-8"));
  EXPECT_THAT(ErrorOf(good + good + "[1]\n"), HasSubstr("x.jsonl:3: an array, expected an object"));
  EXPECT_THAT(ErrorOf("{\"c\":1,\"c\":2}\n"), HasSubstr("x.jsonl:1: key 'c' occurs twice"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("holds no records"));
  EXPECT_THAT(ErrorOf("\n \n"), HasSubstr("holds no records"));
  EXPECT_THAT(ErrorOf("{\"c\":\"1\",\"a\":[]}\n"), HasSubstr("x.jsonl:1: field 'a' is empty"));
  EXPECT_THAT(ErrorOf("{\"c\":\"1\",\"a\":null}\n"), HasSubstr("field 'a' is null"));
  EXPECT_THAT(ErrorOf("{\"c\":\"1\",\"a\":\"\"}\n"), HasSubstr("field 'a' is empty"));
  EXPECT_THAT(ErrorOf("{\"c\":[\"x\"],\"a\":\"x\"}\n"), HasSubstr("field 'c' is an array"));
  EXPECT_THAT(
      ErrorOf("{\"cc\":\"1\",\"a\":\"x\"}\n"),
      AllOf(HasSubstr("x.jsonl:1: field 'c' is missing"), HasSubstr("the record has: a, cc")));
  std::string names;
  for (int i = 0; i < 500; ++i) names += StrCat(i == 0 ? "" : ",", "\"name", 1000 + i, "\":1");
  EXPECT_THAT(ErrorOf(StrCat("{", names, "}\n")), HasSubstr("name1019, and 480 more"));
  const std::string long_name = ErrorOf(StrCat("{\"", std::string(100000, 'x'), "\":1}\n"));
  EXPECT_THAT(long_name, AllOf(HasSubstr("the record has: 'xxx"), HasSubstr("x...'")));
  EXPECT_LT(long_name.size(), 500u);
  EXPECT_THAT(ErrorOf("{\"c\":\"\\ud800\",\"a\":\"x\"}\n"), HasSubstr("x.jsonl:1: column"));
  source_["id"] = "c";
  EXPECT_THAT(ErrorOf(good + good), HasSubstr("x.jsonl:2: id '1' occurs twice"));
}

TEST_F(Jsonl, SkipsAndCountsBadRecords) {
  const std::string good = "{\"c\":\"1\",\"a\":\"x\"}\n";
  const auto [ids, skipped] =
      Tolerant(good + "{\n" + "{\"c\":\"1\"}\n" + "{\"c\":\"\xff\",\"a\":\"x\"}\n" + "3\n" + good);
  EXPECT_THAT(ids, ElementsAre("line-1", "line-6"));
  EXPECT_EQ(skipped, 4);
}

TEST_F(Jsonl, NoRecordAtAllIsNeverSkippedOver) {
  const auto error = [&](const std::string& content) {
    WriteData(content);
    TaskOptions options;
    options.data_directory = directory_.string();
    options.skip_bad = true;
    const auto read = ReadAll(MakeTask(), options);
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_THAT(error(""), HasSubstr("x.jsonl:1: holds no records"));
  EXPECT_THAT(error("{\n{\"c\":\"1\"}\n"), HasSubstr("every record is malformed; the first: "));
  EXPECT_THAT(ErrorOf("{\"c\":\"1\",\"a\":\"x\"}" + std::string(1, '\0') + "{}\n"),
              HasSubstr("x.jsonl:1: column 18: not valid JSON"));
}

// The file is sparse: 200 MB of zero bytes without a newline, then a good line.
TEST_F(Jsonl, SaysWhatWasLeftOut) {
  std::string bad;
  for (int i = 0; i < 150; ++i) bad += "{\"c\":\"1\"}\n";
  WriteData("{\"c\":\"1\",\"a\":\"x\"}\n[]\n" + bad);
  TaskOptions options;
  options.data_directory = directory_.string();
  options.skip_bad = true;
  const auto stream = OpenTask(MakeTask(), options);
  ASSERT_TRUE(ReadAll(**stream).ok());
  EXPECT_EQ((*stream)->skipped(), 151);
  ASSERT_EQ((*stream)->faults().size(), 100u);  // of many the first
  EXPECT_THAT((*stream)->faults()[0], HasSubstr("x.jsonl:2: an array, expected an object"));
  EXPECT_THAT((*stream)->faults()[1], HasSubstr("x.jsonl:3: field 'a' is missing"));
}

TEST_F(Jsonl, TheQuestionBeginsWithinTheDocument) {
  source_ = {{"name", "jsonl"}, {"file", "set/x.jsonl"}, {"context", "{c}"},
             {"document", "c"}, {"split_at", "at"},      {"answers", "a"}};
  const auto record = [](int64_t at) {
    return Json{{"c", "Märchen. Wer?"}, {"at", at}, {"a", "x"}}.dump();
  };
  const auto samples = Open(record(9));
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  EXPECT_EQ((*samples)[0].questions[0].text, "Wer?");
  for (const int64_t at : {13, 999}) {
    EXPECT_THAT(ErrorOf(record(at)),
                HasSubstr(StrCat("x.jsonl:1: field 'at' is ", at,
                                 ", but 'c' has 13 characters: no question is left")));
  }
}

TEST_F(Jsonl, RefusesAnEndlessLine) {
  WriteData("");
  const std::filesystem::path path = directory_ / "set/x.jsonl";
  std::filesystem::resize_file(path, 200u << 20);
  std::ofstream(path, std::ios::binary | std::ios::app) << "\n{\"c\":\"1\",\"a\":\"x\"}\n";
  TaskOptions options;
  options.data_directory = directory_.string();
  const int64_t before = BytesRead();
  EXPECT_THAT(ReadAll(MakeTask(), options).error().message,
              HasSubstr("x.jsonl:1: the record is longer than 64.0 MiB"));
  EXPECT_LT(BytesRead() - before, int64_t{65} << 20);

  options.skip_bad = true;
  const auto stream = OpenTask(MakeTask(), options);
  const auto samples = ReadAll(**stream);
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  ASSERT_EQ(samples->size(), 1u);
  EXPECT_EQ((*samples)[0].id, "line-2");
  EXPECT_EQ((*stream)->skipped(), 1);
}

TEST_F(Jsonl, ReadsAnArray) {
  source_["container"] = "json_array";
  const auto samples = Open("[\n {\"c\": \"}]\\\"{\", \"a\": {\"x\": 1}, \"b\": 2},\n {}]");
  EXPECT_THAT(samples.error().message, HasSubstr("x.jsonl:2: field 'a' is an object"));
  const auto good = Open("[\n {\"c\": \"}]\\\"{\\\\\", \"a\": 1},\n\n {\"c\":\"2\",\"a\":2}\n]\n");
  ASSERT_TRUE(good.ok()) << good.error().message;
  ASSERT_EQ(good->size(), 2u);
  EXPECT_EQ((*good)[0].context, "}]\"{\\");
  EXPECT_EQ((*good)[1].id, "line-4");

  EXPECT_THAT(ErrorOf("{\"c\":1}"), HasSubstr("expected a JSON array"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("array is empty"));
  EXPECT_THAT(ErrorOf("[{\"c\":\"1\",\"a\":1} {\"c\":\"1\",\"a\":1}]"), HasSubstr("expected ','"));
  EXPECT_THAT(ErrorOf("[{\"c\":\"1\",\"a\":1},\n3]"), HasSubstr("x.jsonl:2: expected an object"));
  EXPECT_THAT(ErrorOf("[{\"c\":\"1\",\"a\":1},\n{\"c\":\"1\""), HasSubstr("cut short"));
  EXPECT_THAT(ErrorOf("[{\"c\":\"1\",\"a\":1}"), HasSubstr("x.jsonl:1: "));
  EXPECT_THAT(ErrorOf("[{\"c\":\"1\",\"a\":1}] x"), HasSubstr("text follows the array"));
  EXPECT_THAT(ErrorOf("[{\"c\":\"1\",\n  \"a\" 1}]"), HasSubstr("x.jsonl:2: column 7"));
}

// A cut file is not a bad record: nobody can say what is missing.
TEST_F(Jsonl, ACutArrayIsNeverSkipped) {
  source_["container"] = "json_array";
  WriteData("[{\"c\":\"1\",\"a\":1},{\"c\":");
  TaskOptions options;
  options.data_directory = directory_.string();
  options.skip_bad = true;
  EXPECT_THAT(ReadAll(MakeTask(), options).error().message, HasSubstr("cut short"));
}

TEST_F(Jsonl, TemplatesChoicesAndFacts) {
  source_ = {{"name", "jsonl"},
             {"file", "sample/one.jsonl"},
             {"context", "Read: {text}|{text}.{{}}"},
             {"question", "\n{q} A. {options[0]} B. {options[1]}"},
             {"answer_prefix", "{q}:"},
             {"document", "text"},
             {"answers", "gold"},
             {"answer_kind", "index0"},
             {"choices", "options"},
             {"id", "n"},
             {"length", "words"},
             {"facts", "q, words"},
             {"chat_template", false},
             {"language", "de"}};
  TaskOptions options;
  options.data_directory = kData;
  const auto samples = ReadAll(MakeTask(), options);
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  ASSERT_EQ(samples->size(), 2u);
  const Sample& sample = (*samples)[0];
  EXPECT_EQ(sample.id, "7");
  EXPECT_EQ(sample.context, "Read: T1|T1.{}");
  ASSERT_EQ(sample.marks.size(), 2u);
  EXPECT_EQ(sample.marks[1].kind, MarkKind::kQuestion);
  EXPECT_EQ(sample.marks[0].begin, 9);
  EXPECT_EQ(sample.marks[0].end, 11);
  EXPECT_EQ(sample.questions[0].text, "\nQ1 A. red B. blue");
  EXPECT_EQ(sample.questions[0].answer_prefix, "Q1:");
  EXPECT_THAT(sample.questions[0].answers, ElementsAre("blue"));
  EXPECT_THAT(sample.questions[0].all_classes, ElementsAre("red", "blue"));
  EXPECT_EQ(sample.questions[0].max_new_tokens, 5);
  EXPECT_EQ(sample.length, 120);
  EXPECT_EQ(sample.language, "de");
  EXPECT_FALSE(sample.chat_template);
  EXPECT_EQ(sample.mode, QuestionMode::kSingle);
  EXPECT_THAT(sample.facts, ElementsAre(Pair("q", "Q1"), Pair("words", "120")));

  source_["answer_kind"] = "index1";
  EXPECT_THAT(ReadAll(MakeTask(), options).error().message,
              HasSubstr("one.jsonl:2: field 'gold' is 0, expected the index of one of 2 choices"));
  source_["question"] = "{options[2]}";
  EXPECT_THAT(ReadAll(MakeTask(), options).error().message,
              HasSubstr("field 'options' has 2 entries, index 2 is wanted"));
}

TEST_F(Jsonl, AnswersOfAnyScalarKind) {
  source_["file"] = "sample/one.jsonl";
  source_["context"] = "{text}";
  source_["answers"] = "answer";
  TaskOptions options;
  options.data_directory = kData;
  const auto samples = ReadAll(MakeTask(), options);
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  EXPECT_THAT((*samples)[0].questions[0].answers, ElementsAre("3.5"));
  EXPECT_THAT((*samples)[1].questions[0].answers, ElementsAre("1", "True", "x"));
}

TEST_F(Jsonl, ListsOfNumbersReadAsPythonPrintsThem) {
  const auto samples = Open("{\"c\":[1, -2, 2.5],\"a\":\"x\"}");
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  EXPECT_EQ(samples->at(0).context, "[1, -2, 2.5]");
}

TEST_F(Jsonl, KindsAndPeersNeedTheirOther) {
  const auto wrong = [&](const char* name, const char* value) {
    const Json before = std::exchange(source_[name], value);
    const Result<Task> task = ParseTask(MakeTaskJson(), "t.json");
    source_[name] = before;
    if (before.is_null()) source_.erase(name);
    return task.ok() ? std::string() : task.error().message;
  };
  EXPECT_THAT(wrong("kind", "t"), HasSubstr("source.kind: the field, and .kinds"));
  EXPECT_THAT(wrong("kinds", "qa=4"), HasSubstr("source.kind: the field, and .kinds"));
  EXPECT_THAT(wrong("peers", "p"), HasSubstr("source.peers: needs .named"));
  source_["kind"] = "t";
  for (const char* bad : {"qa", "qa=", "qa=x", "qa=0", "qa=3x"}) {
    EXPECT_THAT(wrong("kinds", bad), HasSubstr("expected KIND=TOKENS")) << bad;
  }
}

TEST_F(Jsonl, AnswersCanBeExtracted) {
  source_["answer_extract"] = "gsm8k_strict";
  const auto samples = Open("{\"c\":\"1\",\"a\":\"so 2<<1+1=2>>\\n#### 1,002\"}");
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  EXPECT_THAT((*samples)[0].questions[0].answers, ElementsAre("1002"));
  EXPECT_THAT(ErrorOf("{\"c\":\"1\",\"a\":\"two\"}"), HasSubstr("field 'a' holds nothing"));
}

TEST_F(Jsonl, TurnsShareTheirContext) {
  source_ = {{"name", "jsonl"},         {"file", "sample/turns.jsonl"},
             {"context", "{context}."}, {"question", "{input}?"},
             {"document", "context"},   {"turns", "multi_turns"},
             {"answers", "answer"},     {"id", "id"},
             {"truncate", "middle"}};
  const ByteCodec codec;
  TaskOptions options;
  options.data_directory = kData;
  const auto shared = ReadAll(MakeTask(), options);
  ASSERT_TRUE(shared.ok()) << shared.error().message;
  const Sample& sample = shared->at(0);
  EXPECT_EQ(sample.mode, QuestionMode::kMultiRequest);
  EXPECT_EQ(sample.context, "shared.");
  ASSERT_EQ(sample.questions.size(), 2u);
  EXPECT_EQ(sample.questions[0].text, "first?");
  EXPECT_EQ(sample.questions[1].text, "second?");
  EXPECT_THAT(sample.questions[1].answers, ElementsAre("2", "two"));

  // Requests leave the context to be cut alone; in a conversation the first question counts.
  options.codec = &codec;
  options.max_prompt_tokens = 6;
  const auto cut = ReadAll(MakeTask(), options);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->at(0).context, "shed.");
  EXPECT_EQ(cut->at(0).questions[0].text, "first?");
  source_["mode"] = "multi_turn";
  options.max_prompt_tokens = 12;
  const auto talk = ReadAll(MakeTask(), options);
  ASSERT_TRUE(talk.ok());
  EXPECT_EQ(talk->at(0).mode, QuestionMode::kMultiTurn);
  EXPECT_EQ(talk->at(0).context, "share");
  EXPECT_EQ(talk->at(0).questions[0].text, "first?");
  EXPECT_EQ(talk->at(0).questions[1].text, "second?");

  source_["turns"] = "context";
  EXPECT_THAT(ReadAll(MakeTask(), options).error().message,
              HasSubstr("field 'context' is not an array of objects"));
}

TEST_F(Jsonl, MathematicsIsAskedAsPublished) {
  for (const auto& [name, field] : {std::pair("math500", "problem"), {"aime25", "question"}}) {
    const auto task = ReadTask(StrCat(KVG_SOURCE_DIR, "/configs/tasks/", name, ".json"));
    ASSERT_TRUE(task.ok()) << task.error().message;
    std::filesystem::create_directories(directory_ / name);
    std::ofstream(directory_ / name / "test.jsonl")
        << "{\"" << field << "\": \"What is $\\\\frac{2}{1}$?\", \"answer\": \"2\"}\n";
    TaskOptions options;
    options.data_directory = directory_.string();
    const auto samples = ReadAll(*task, options);
    ASSERT_TRUE(samples.ok()) << samples.error().message;
    EXPECT_EQ(
        WholePrompt(samples->at(0)),
        "You are given a math problem.\n\nProblem: What is $\\frac{2}{1}$?\n\n You need to solve "
        "the problem step by step. First, you need to provide the chain-of-thought, then "
        "provide the final answer.\n\n Provide the final answer in the format: Final answer:  "
        "\\boxed{}");
    EXPECT_THAT(samples->at(0).questions[0].answers, ElementsAre("2"));
    EXPECT_EQ(task->metric, "equal_as_it_is");
    EXPECT_EQ(PostProcess(task->post, "1 + 1, so \\boxed{2}. Final answer: \\boxed{2}"), "2");
  }
}

TEST_F(Jsonl, TheWorkedExamplesOfGsm8k) {
  const auto task = ReadTask(std::string(KVG_SOURCE_DIR) + "/configs/tasks/gsm8k_cot.json");
  ASSERT_TRUE(task.ok()) << task.error().message;
  std::filesystem::create_directories(directory_ / "gsm8k");
  std::ofstream(directory_ / "gsm8k/test.jsonl")
      << R"({"question": "What is 2+2?", "answer": "4 it is\n#### 4"})";
  TaskOptions options;
  options.data_directory = directory_.string();
  const auto samples = ReadAll(*task, options);
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  const std::string prompt = WholePrompt(samples->at(0));
  EXPECT_TRUE(prompt.starts_with("Q: There are 15 trees in the grove."));
  EXPECT_TRUE(prompt.ends_with("The answer is 8.\n\nQ: What is 2+2?\nA:"));
  EXPECT_THAT(samples->at(0).questions[0].answers, ElementsAre("4"));
  EXPECT_EQ(PostProcess(task->post, " 2 + 2 = 4. The answer is 4.\n\nQ: And 5? The answer is 5."),
            "4");
}

}  // namespace
}  // namespace kvgauge
