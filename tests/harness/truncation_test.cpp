// SPDX-License-Identifier: Apache-2.0
// LongBench prompts cut on real tokenizers: the same text and the same ids as the reference
// pipeline has (tests/golden/tokenizers/truncation.json).
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "datasets/task.h"
#include "runner/tokenizer.h"
#include "src/model/tokenizer_codec.h"

namespace kvgauge {
namespace {

TEST(Truncation, IdsAreThoseOfTheReferencePipeline) {
  const std::string folder = StrCat(KVG_TEST_DATA, "/golden/tokenizers");
  const Result<Json> read = ReadJsonFile(folder + "/truncation.json");
  ASSERT_TRUE(read.ok()) << read.error().message;
  const Json& golden = *read;
  const std::filesystem::path data =
      std::filesystem::path(::testing::TempDir()) / StrCat("truncation_", getpid());
  std::filesystem::create_directories(data / "longbench");
  {
    std::ofstream file(data / "longbench/x.jsonl");
    for (const Json& text : golden["texts"]) {
      file << Json({{"_id", StrCat(file.tellp())},
                    {"context", text},
                    {"input", golden["question"]},
                    {"answers", {"a"}},
                    {"all_classes", nullptr},
                    {"language", "en"},
                    {"length", 1}})
                  .dump()
           << "\n";
    }
  }
  const Result<Task> task = ParseTask(
      {{"name", "x"},
       {"version", 1},
       {"group", "x"},
       {"description", "d"},
       {"metric", "qa_f1"},
       {"max_new_tokens", 4},
       {"source",
        {{"name", "longbench"},
         {"file", "longbench/x.jsonl"},
         {"prompt", "Read the text.\n\n{context}\n\nNow answer.\n\nQuestion: {input}\nAnswer:"}}}},
      "x.json");
  ASSERT_TRUE(task.ok()) << task.error().message;

  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  int cut = 0;
  for (const Json& row : golden["cases"]) {
    const std::string name = row["tokenizer"];
    if (!tokenizers.contains(name)) {
      Result<std::unique_ptr<Tokenizer>> loaded = LoadTokenizer(folder + "/" + name);
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      tokenizers[name] = std::move(loaded).value();
    }
    const Tokenizer& tokenizer = *tokenizers[name];
    const TokenizerCodec codec(tokenizer);
    TaskOptions options;
    options.data_directory = data.string();
    options.codec = &codec;
    options.max_prompt_tokens = row["limit"];
    const auto stream = OpenTask(*task, options);
    ASSERT_TRUE(stream.ok()) << stream.error().message;
    Sample sample;
    for (int i = 0; i <= row["text"].get<int>(); ++i) {
      Result<std::optional<Sample>> next = (*stream)->Next();
      ASSERT_TRUE(next.ok() && *next) << name;
      sample = **next;
    }
    const std::string prompt = sample.context + sample.questions[0].text;
    const std::string what =
        StrCat(name, ", text ", row["text"].get<int>(), ", limit ", row["limit"].get<int>());
    EXPECT_EQ(prompt, row["prompt"].get<std::string>()) << what;
    const auto ids = codec.Encode(prompt, true);
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ(*ids, row["ids"].get<std::vector<int32_t>>()) << what;
    cut += row["tokens"] > row["limit"] ? 1 : 0;
  }
  EXPECT_GE(tokenizers.size(), 10u);
  EXPECT_GE(cut, 100);
  std::filesystem::remove_all(data);
}

}  // namespace
}  // namespace kvgauge
