// SPDX-License-Identifier: Apache-2.0
// Text sets whose records are rows of a table: rows read as objects by the source of JSON lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <span>

#include "core/json.h"
#include "datasets/formats.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextTables : public Formats {
 protected:
  Result<std::vector<Sample>> With(const std::string& name, const Json& set,
                                   const std::string& content, const TextCodec* codec = nullptr) {
    Result<Task> task = ReadTask(StrCat(KVG_SOURCE_DIR, "/configs/tasks/", name, ".json"));
    if (!task.ok()) return task.error();
    task = WithSourceParams(*task, set);
    if (!task.ok()) return task.error();
    task_ = *task;
    const std::filesystem::path path = directory_ / task->source_params.Text("file");
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    TaskOptions options;
    options.data_directory = directory_.string();
    options.codec = codec;
    return ReadAll(*task, options);
  }
};

// A token a byte, and one before them.
class BytesBehindOne final : public TextCodec {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view text, bool add_special) const override {
    std::vector<int32_t> ids(add_special ? 1 : 0);
    ids.insert(ids.end(), text.begin(), text.end());
    return ids;
  }
  std::string Decode(std::span<const int32_t> ids, bool) const override {
    return {ids.begin(), ids.end()};
  }
};

TEST_F(TextTables, NestedFieldsOfNarrativeQa) {
  const auto samples = With(
      "narrativeqa", {{"container", "jsonl"}},
      R"({"document": {"id": "d", "kind": "movie", "text": "Ann left."}, "question": {"text": "Who left?", "tokens": []}, "answers": [{"text": "Ann"}, {"text": "It was Ann"}]})");
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  const Sample& sample = samples->at(0);
  EXPECT_TRUE(sample.context.ends_with("\n\nStory: Ann left.\n\n")) << sample.context;
  EXPECT_TRUE(sample.questions[0].text.starts_with("Now, answer the question")) << sample.context;
  EXPECT_TRUE(sample.questions[0].text.ends_with("Question: Who left?\n\nAnswer:"));
  EXPECT_THAT(sample.questions[0].answers, ElementsAre("Ann", "It was Ann"));
  EXPECT_NEAR(Score(sample, "Ann"), 1, 1e-6);
  const auto flat = With("narrativeqa", {{"container", "jsonl"}}, R"({"document": "text"})");
  ASSERT_FALSE(flat.ok());
  EXPECT_THAT(flat.error().message, HasSubstr("field 'document' is a string, expected an object"));
}

TEST_F(TextTables, Lcc) {
  const auto samples = With("lcc", {{"container", "jsonl"}},
                            R"x({"context": "import os\n", "gt": "print(os.name)"})x");
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  EXPECT_EQ(WholePrompt(samples->at(0)),
            "Please complete the code given below. \nimport os\nNext line of code:\n");
  EXPECT_EQ(Score(samples->at(0), "print(os.name)\n"), 1);
  EXPECT_FALSE(samples->at(0).chat_template);
}

// What construct_prompt of RepoBench 1.1 gives with a tokenizer like that one.
TEST_F(TextTables, RepoBenchDropsLinesOfOtherFiles) {
  const BytesBehindOne codec;
  const std::string row =
      R"({"repo_name": "a/b", "file_path": "m.py", "import_statement": "import x", "cropped_code": "y = 1  \n", "next_line": "z", "level": "2k", "context": [{"path": "p.py", "snippet": "one\ntwo"}, {"path": "q.py", "snippet": "three"}]})";
  const std::string own = "# Path: m.py\nimport x\ny = 1\n", name = "# Repo Name: a/b\n";
  const std::map<int, std::string> cut = {
      {20, "\n\n"},
      {60, name + "# Path: p.py\n\n"},
      {80, name + "# Path: p.py\none\ntwo\n\n\n"},
      {110, name + "# Path: p.py\none\ntwo\n\n# Path: q.py\nthree\n\n"}};
  for (const auto& [tokens, others] : cut) {
    const auto samples = With("repobench/python_in_file",
                              {{"container", "jsonl"}, {"max_tokens", tokens}}, row, &codec);
    ASSERT_TRUE(samples.ok()) << samples.error().message;
    EXPECT_EQ(WholePrompt(samples->at(0)), others + own) << tokens;
    const MetricSpec* exact = FindMetric("repobench_exact");
    const Question& question = samples->at(0).questions[0];
    EXPECT_EQ(*exact->score(Input(question, "# no\n\n  z \nx")), 1);
    EXPECT_EQ(*exact->score(Input(question, "# no\nz = 1")), 0);
    EXPECT_EQ(*exact->score(Input(question, "# z")), 0);
  }
}

TEST_F(TextTables, CellsOfCommaSeparatedValues) {
  const auto read = [&](const std::string& content) {
    return With("lcc", {{"container", "csv"}, {"file", "lcc/x.csv"}}, content);
  };
  const auto samples = read("id,context,gt\n1,\"a, \"\"b\"\"\nc\",d\n");
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  EXPECT_THAT(samples->at(0).context, HasSubstr("a, \"b\"\nc"));
  EXPECT_THAT(samples->at(0).questions[0].answers, ElementsAre("d"));
  const auto missing = read("id,context,gt\n1,a,NA\n");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, AllOf(HasSubstr("x.csv: row 1: column 'gt'")));
  const auto empty = read("id,context,gt\n");
  ASSERT_FALSE(empty.ok());
  EXPECT_THAT(empty.error().message, HasSubstr("holds no rows"));
}

}  // namespace
}  // namespace kvgauge
