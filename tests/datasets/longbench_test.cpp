// SPDX-License-Identifier: Apache-2.0
// LongBench v1, -E and v2: prompts, truncation and facts against the reference pipeline's rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "datasets/sample_stream.h"
#include "datasets/task.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

const std::string kLongBenchTasks = std::string(KVG_SOURCE_DIR) + "/configs/tasks/";
const std::string kLongBenchData = std::string(KVG_TEST_DATA) + "/datasets/data";

Task Read(const std::string& name) {
  Result<Task> task = ReadTask(kLongBenchTasks + name + ".json");
  EXPECT_TRUE(task.ok()) << task.error().message;
  return *std::move(task);
}

std::vector<Sample> Samples(const std::string& name, TaskOptions options = {}) {
  options.data_directory = kLongBenchData;
  Result<std::vector<Sample>> samples = ReadAll(Read(name), options);
  EXPECT_TRUE(samples.ok()) << samples.error().message;
  return samples.ok() ? *std::move(samples) : std::vector<Sample>();
}

TEST(LongBench, FillsTheTemplateInOnePass) {
  const auto samples = Samples("longbench/qasper");
  ASSERT_EQ(samples.size(), 3u);
  const Sample& first = samples[0];
  EXPECT_EQ(first.id, "000000000000000000000000000000000000000000000001");
  EXPECT_EQ(WholePrompt(first),
            "You are given a scientific article and a question. Answer the question as concisely "
            "as you can, using a single phrase or sentence if possible. If the question cannot be "
            "answered based on the information in the article, write \"unanswerable\". If the "
            "question is a yes/no question, answer \"yes\", \"no\", or \"unanswerable\". Do not "
            "provide any explanation.\n\nArticle: The key is under the mat.\n\n Answer the "
            "question based on the above article as concisely as you can, using a single phrase "
            "or sentence if possible. If the question cannot be answered based on the information "
            "in the article, write \"unanswerable\". If the question is a yes/no question, answer "
            "\"yes\", \"no\", or \"unanswerable\". Do not provide any explanation.\n\nQuestion: "
            "Where is the key?\n\nAnswer:");
  EXPECT_TRUE(first.context.ends_with("Article: The key is under the mat."));
  ASSERT_EQ(first.marks.size(), 2u);
  EXPECT_EQ(first.marks[1].kind, MarkKind::kQuestion);
  EXPECT_EQ(first.marks[0].kind, MarkKind::kContext);
  EXPECT_EQ(first.context.substr(static_cast<size_t>(first.marks[0].begin)),
            "The key is under the mat.");
  EXPECT_EQ(first.marks[0].end, static_cast<int64_t>(first.context.size()));
  EXPECT_TRUE(first.chat_template);
  EXPECT_EQ(first.questions[0].max_new_tokens, 128);
  EXPECT_EQ(first.length, 12);
  EXPECT_EQ(first.language, "en");
  EXPECT_THAT(first.facts, IsEmpty());
  EXPECT_THAT(first.questions[0].all_classes, IsEmpty());

  EXPECT_THAT(WholePrompt(samples[1]), AllOf(HasSubstr("Braces {input} and {{x}} stay."),
                                             HasSubstr("Question: Why {context}?")));
  EXPECT_THAT(samples[2].questions[0].answers, ElementsAre("a", "b"));
  EXPECT_EQ(samples[0].group, samples[2].group);
  EXPECT_NE(samples[0].group, samples[1].group);
}

TEST(LongBench, FewShotAndCodeTasksGoBare) {
  const Sample trec = Samples("longbench/trec").at(0);
  EXPECT_EQ(WholePrompt(trec),
            "Please determine the type of the question below. Here are some examples of "
            "questions.\n\nQuestion: Who?\nType: Person\nQuestion: What is a mat?\nType:");
  EXPECT_EQ(trec.questions[0].text, "\nQuestion: What is a mat?\nType:");
  EXPECT_FALSE(trec.chat_template);
  EXPECT_THAT(trec.questions[0].all_classes, ElementsAre("Person", "Thing"));
  EXPECT_EQ(trec.questions[0].max_new_tokens, 64);

  const Sample code = Samples("longbench/repobench-p").at(0);
  EXPECT_EQ(WholePrompt(code),
            "Please complete the code given below. \nint a;\nint b = \U0001f600;\nNext line of "
            "code:\n");
  EXPECT_FALSE(code.chat_template);
  EXPECT_EQ(code.language, "java");

  const Sample chinese = Samples("longbench/multifieldqa_zh").at(0);
  EXPECT_THAT(WholePrompt(chinese), HasSubstr("问题：钥匙在哪？\n回答："));
  EXPECT_EQ(chinese.language, "zh");
  EXPECT_TRUE(chinese.chat_template);
}

TEST(LongBench, RulesPerTask) {
  const std::vector<std::string> bare = {"trec", "triviaqa", "samsum",
                                         "lsht", "lcc",      "repobench-p"};
  const std::vector<std::string> first_line = {"trec", "triviaqa", "samsum", "lsht"};
  const auto tasks = ReadTasks(kLongBenchTasks + "longbench");
  ASSERT_TRUE(tasks.ok()) << tasks.error().message;
  for (const Task& task : *tasks) {
    const std::string stem = task.name.substr(task.name.find('/') + 1);
    const auto in = [&](const std::vector<std::string>& list) {
      return std::find(list.begin(), list.end(), stem) != list.end();
    };
    EXPECT_EQ(task.source_params.Bool("chat_template"), !in(bare)) << stem;
    EXPECT_EQ(task.post.first_line, in(first_line)) << stem;
    EXPECT_EQ(task.post.skip_newlines, in(first_line)) << stem;
    EXPECT_EQ(task.stop.min_new_tokens, stem == "samsum" ? 1 : 0) << stem;
    EXPECT_EQ(task.stop.last_token_of.size(), stem == "samsum" ? 1u : 0u) << stem;
  }
}

// The -E files share template, limits and rules with their v1 twins.
TEST(LongBench, ETasksEqualTheirTwins) {
  const auto tasks = ReadTasks(kLongBenchTasks + "longbench_e");
  ASSERT_TRUE(tasks.ok()) << tasks.error().message;
  for (const Task& task : *tasks) {
    const std::string stem = task.name.substr(task.name.find('/') + 1);
    const Task twin = Read("longbench/" + stem);
    EXPECT_EQ(task.source_params.Text("prompt"), twin.source_params.Text("prompt")) << stem;
    EXPECT_EQ(task.source_params.Text("file"), "longbench/" + stem + "_e.jsonl");
    EXPECT_EQ(task.max_new_tokens, twin.max_new_tokens) << stem;
    EXPECT_EQ(task.metric, twin.metric) << stem;
    EXPECT_EQ(task.post.first_line, twin.post.first_line) << stem;
    EXPECT_EQ(task.stop.last_token_of, twin.stop.last_token_of) << stem;
    EXPECT_EQ(task.source_params.Bool("chat_template"), twin.source_params.Bool("chat_template"));
  }
}

TEST(LongBench, EBuckets) {
  std::vector<std::string> buckets;
  for (const Sample& sample : Samples("longbench_e/qasper")) {
    ASSERT_EQ(sample.facts.size(), 1u);
    EXPECT_EQ(sample.facts[0].first, "length_bucket");
    buckets.push_back(sample.facts[0].second);
  }
  EXPECT_THAT(buckets, ElementsAre("0-4k", "4-8k", "4-8k", "8k+"));
}

TEST(LongBench, CutsTheMiddleOfTheWholePrompt) {
  const ByteCodec codec;
  const std::string whole = WholePrompt(Samples("longbench/qasper").at(0));
  const int64_t tokens = static_cast<int64_t>(whole.size()) + 1;  // and BOS

  TaskOptions options;
  options.codec = &codec;
  options.max_prompt_tokens = tokens;
  EXPECT_EQ(WholePrompt(Samples("longbench/qasper", options).at(0)), whole);

  // BOS is one of the first half's tokens and is dropped with the other special tokens.
  for (const int64_t limit : {int64_t{100}, int64_t{101}, tokens - 1}) {
    options.max_prompt_tokens = limit;
    const Sample cut = Samples("longbench/qasper", options).at(0);
    const auto half = static_cast<size_t>(limit / 2);
    EXPECT_EQ(WholePrompt(cut), whole.substr(0, half - 1) + whole.substr(whole.size() - half));
    EXPECT_THAT(cut.facts, ElementsAre(Pair("cut_from", std::to_string(tokens))));
  }
  // One byte is missing in the middle: the question and the document keep their places.
  options.max_prompt_tokens = tokens - 1;
  const Sample full = Samples("longbench/qasper").at(0);
  const Sample cut = Samples("longbench/qasper", options).at(0);
  EXPECT_LT(cut.context.size(), full.context.size() + 1);
  EXPECT_NE(cut.hash, full.hash);
  EXPECT_EQ(cut.group, full.group);

  options.max_prompt_tokens = 1;
  options.data_directory = kLongBenchData;
  EXPECT_THAT(ReadAll(Read("longbench/qasper"), options).error().message,
              HasSubstr("at least 2 tokens"));
}

TEST(LongBench, ACutCharacterShowsOnBothSides) {
  const ByteCodec codec;
  const std::string whole = WholePrompt(Samples("longbench/multifieldqa_zh").at(0));
  TaskOptions options;
  options.codec = &codec;
  options.max_prompt_tokens = 16;  // BOS and 7 bytes; 8 bytes: neither is a multiple of three
  const Sample cut = Samples("longbench/multifieldqa_zh", options).at(0);
  EXPECT_EQ(WholePrompt(cut),
            RepairUtf8(whole.substr(0, 7)) + RepairUtf8(whole.substr(whole.size() - 8)));
  EXPECT_THAT(WholePrompt(cut), HasSubstr("\ufffd"));
  EXPECT_EQ(FindInvalidUtf8(cut.context), std::string::npos);
  EXPECT_EQ(FindInvalidUtf8(cut.questions[0].text), std::string::npos);
}

TEST(LongBenchV2, SubstitutesInOrder) {
  const auto samples = Samples("longbench_v2");
  ASSERT_EQ(samples.size(), 2u);
  // Values are stripped; what a value brings in is replaced by the values after it.
  EXPECT_EQ(WholePrompt(samples[0]),
            "Please read the following text and answer the question below.\n\n<text>\nA \"text\" "
            "with {braces}, Which one two? and \\ signs.\n</text>\n\nWhat is the correct answer "
            "to this question: Which one two?\nChoices:\n(A) one two\n(B) two\n(C) three\n(D) "
            "four\n\nFormat your response as follows: \"The correct answer is (insert answer "
            "here)\".");
  EXPECT_TRUE(samples[0].context.ends_with("\\ signs."));
  EXPECT_THAT(samples[0].questions[0].answers, ElementsAre("B"));
  EXPECT_THAT(samples[0].questions[0].all_classes, ElementsAre("A", "B", "C", "D"));
  EXPECT_THAT(samples[0].facts,
              ElementsAre(Pair("difficulty", "easy"), Pair("length", "short"),
                          Pair("domain", "Law"), Pair("sub_domain", "Contracts")));
  EXPECT_TRUE(samples[0].chat_template);
  EXPECT_EQ(samples[0].questions[0].max_new_tokens, 128);
}

TEST(LongBenchV2, WithoutTheDocument) {
  const Sample sample = Samples("longbench_v2_no_context").at(1);
  EXPECT_EQ(sample.context, "");
  ASSERT_EQ(sample.marks.size(), 1u);
  EXPECT_EQ(sample.marks[0].kind, MarkKind::kQuestion);
  EXPECT_EQ(sample.questions[0].text,
            "What is the correct answer to this question: Q\nChoices:\n(A) 1\n(B) 2\n(C) 3\n(D) "
            "4\n\nWhat is the single, most likely answer choice? Format your response as follows: "
            "\"The correct answer is (insert answer here)\".");
}

TEST(LongBenchV2, AConclusionIsAPromptOfItsOwn) {
  const Sample sample = Samples("longbench_v2_cot").at(0);
  const Question& question = sample.questions[0];
  EXPECT_TRUE(HasConclusion(sample));
  EXPECT_FALSE(HasConclusion(Samples("longbench_v2").at(0)));
  EXPECT_NE(sample.hash, Samples("longbench_v2").at(0).hash);
  EXPECT_TRUE(WholePrompt(sample).ends_with("(D) four\n\nLet\u2019s think step by step:"));
  EXPECT_EQ(question.max_new_tokens, 1024);
  // The reasoning is put in last: a placeholder in it stays, every one outside is filled.
  const Sample asked = ConclusionOf(sample, question, " \nAs $Q$ says. ");
  EXPECT_EQ(asked.context, "");
  ASSERT_EQ(asked.questions.size(), 1u);
  EXPECT_EQ(
      asked.questions[0].text,
      "Please read the following text and answer the questions below.\n\nThe text is too long "
      "and omitted here.\n\nWhat is the correct answer to this question: Which one "
      "two?\nChoices:\n(A) one two\n(B) two\n(C) three\n(D) four\n\nLet\u2019s think step by "
      "step: As $Q$ says.\n\nBased on the above, what is the single, most likely answer "
      "choice? Format your response as follows: \"The correct answer is (insert answer "
      "here)\".");
  EXPECT_THAT(asked.questions[0].answers, ElementsAre("B"));
  EXPECT_EQ(asked.questions[0].max_new_tokens, 128);
  EXPECT_FALSE(HasConclusion(asked));
}

// An odd limit keeps one more token at the end, and both ends are decoded as one text.
TEST(LongBenchV2, CutsTheMiddle) {
  const ByteCodec codec;
  const std::string whole = WholePrompt(Samples("longbench_v2").at(0));
  for (const size_t limit : {size_t{60}, size_t{61}}) {
    TaskOptions options;
    options.codec = &codec;
    options.max_prompt_tokens = static_cast<int64_t>(limit);
    const Sample cut = Samples("longbench_v2", options).at(0);
    EXPECT_EQ(WholePrompt(cut),
              whole.substr(0, limit / 2 - 1) + whole.substr(whole.size() - (limit - limit / 2)));
  }
}

class BadRows : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(::testing::TempDir()) / std::to_string(getpid()) /
                 (std::string("bad_rows_") +
                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_ / "longbench");
    std::filesystem::create_directories(directory_ / "longbench_v2");
  }
  void TearDown() override { std::filesystem::remove_all(directory_.parent_path()); }

  Result<std::vector<Sample>> Open(const std::string& task, const std::string& file,
                                   const std::string& content) {
    std::ofstream(directory_ / file) << content;
    TaskOptions options;
    options.data_directory = directory_.string();
    return ReadAll(Read(task), options);
  }
  std::string ErrorOf(const Json& row) {
    const auto read = Open("longbench/qasper", "longbench/qasper.jsonl", row.dump() + "\n");
    return read.ok() ? "" : read.error().message;
  }

  std::filesystem::path directory_;
};

TEST_F(BadRows, NameLineFieldAndRemedy) {
  const Json good = {{"input", "q"}, {"context", "c"},        {"answers", {"a"}},
                     {"length", 3},  {"dataset", "qasper"},   {"language", "en"},
                     {"_id", "1"},   {"all_classes", nullptr}};
  EXPECT_EQ(ErrorOf(good), "");
  const auto with = [&](const std::string& key, const Json& value) {
    Json row = good;
    row[key] = value;
    return row;
  };
  EXPECT_THAT(ErrorOf(with("answers", Json::array())),
              HasSubstr("qasper.jsonl:1: field 'answers' is empty"));
  EXPECT_THAT(ErrorOf(with("answers", {"", " \n"})),
              HasSubstr("qasper.jsonl:1: field 'answers' is empty: no prediction could be right"));
  EXPECT_EQ(ErrorOf(with("answers", {"", "a"})), "");
  EXPECT_THAT(ErrorOf(with("answers", "a")),
              HasSubstr("field 'answers' is a string, expected an array of strings"));
  EXPECT_THAT(ErrorOf(with("answers", {"a", 3})), HasSubstr("holds a number at index 1"));
  EXPECT_THAT(ErrorOf(with("length", -3)), HasSubstr("field 'length' is -3, expected a whole"));
  EXPECT_THAT(ErrorOf(with("length", 2.5)), HasSubstr("field 'length' is 2.5"));
  EXPECT_THAT(ErrorOf(with("length", "short")), HasSubstr("field 'length' is a string"));
  EXPECT_THAT(ErrorOf(with("context", nullptr)), HasSubstr("field 'context' is null"));
  for (const char* key : {"input", "context", "answers", "length", "language", "_id"}) {
    Json row = good;
    row.erase(key);
    EXPECT_THAT(ErrorOf(row), HasSubstr(std::string("field '") + key + "' is missing")) << key;
  }
  Json renamed = good;
  renamed.erase("context");
  renamed["contexts"] = "c";
  EXPECT_THAT(ErrorOf(renamed), HasSubstr("did you mean 'contexts'?"));
}

TEST_F(BadRows, V2AnswerIsALetter) {
  const Json row = {{"_id", "1"},           {"domain", "d"},    {"sub_domain", "s"},
                    {"difficulty", "easy"}, {"length", "long"}, {"question", "q"},
                    {"choice_A", "1"},      {"choice_B", "2"},  {"choice_C", "3"},
                    {"choice_D", "4"},      {"answer", "E"},    {"context", "c"}};
  const auto read = Open("longbench_v2", "longbench_v2/data.json", "[" + row.dump() + "]");
  EXPECT_THAT(read.error().message, HasSubstr("field 'answer' is 'E', expected A, B, C or D"));
}

}  // namespace
}  // namespace kvgauge
