// SPDX-License-Identifier: Apache-2.0
// Generated samples of a requested number of tokens, counted with tokenizers of every kind that the
// model families use: never above, and one below at most where the source says so or is asked to.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/strings.h"
#include "datasets/task.h"
#include "runner/tokenizer.h"
#include "src/model/tokenizer_codec.h"

namespace kvgauge {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSamples = 1;  // of each length

struct Vocabulary {
  std::string name;
  std::unique_ptr<Tokenizer> tokenizer;
};

std::vector<Vocabulary> Vocabularies() {
  std::vector<Vocabulary> all;
  for (const auto& entry : fs::directory_iterator(KVG_TEST_DATA "/golden/tokenizers")) {
    if (!entry.is_directory() || entry.path().filename() == "opt_files") continue;
    auto loaded = LoadTokenizer(entry.path().string());
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    if (loaded.ok()) all.push_back({entry.path().filename().string(), *std::move(loaded)});
  }
  std::sort(all.begin(), all.end(),
            [](const Vocabulary& a, const Vocabulary& b) { return a.name < b.name; });
  EXPECT_GE(all.size(), 12u);
  return all;
}

int64_t Tokens(const Tokenizer& tokenizer, const std::string& text) {
  return std::ssize(*TokenizerCodec(tokenizer).Encode(text, false));
}

class ExactLengths : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(data_ / "ruler");
    Json paragraphs = Json::array();
    for (int i = 0; i < 60; ++i) {
      paragraphs.push_back(
          {{"context", StrCat("The well of Norwick holds ", 100 + i, " buckets. It rained in ",
                              1800 + i, ", and the mill stood still for ", i, " days.")},
           {"qas",
            {{{"question", StrCat("What did the mill do in ", 1800 + i, "?")},
              {"is_impossible", false},
              {"answers", {{{"text", "stood still"}}}}}}}});
    }
    std::ofstream(data_ / "ruler/dev-v2.0.json")
        << Json{{"data", {{{"paragraphs", paragraphs}}}}}.dump();
    // Letters that small vocabularies spell in bytes.
    fs::create_directories(data_ / "runes");
    std::string runes;
    for (int i = 0; i < 400; ++i) runes += i % 9 == 8 ? "ᛟ. " : "ᚠᚢᚦ";
    std::ofstream(data_ / "runes/a.txt") << runes;
  }
  void TearDown() override { fs::remove_all(data_); }

  // What the source gives for the length, in tokens of the longest text that is fed.
  std::vector<int64_t> Measure(const Tokenizer& tokenizer, const std::string& source, Json given,
                               int64_t length) {
    const TokenizerCodec codec(tokenizer);
    const SourceSpec* spec = FindSource(source);
    given["lengths"] = std::to_string(length);
    const bool needle = source == "needle";
    given[needle ? "repeats" : "samples"] = kSamples;
    if (needle || source == "key_value") given["depths"] = "50";
    const auto params = Params::Parse(spec->params, given, source);
    EXPECT_TRUE(params.ok()) << params.error().message;
    TaskOptions options;
    options.codec = &codec;
    options.seed = 11;
    options.data_directory = data_.string();
    const auto stream = spec->open(*params, Json(), options);
    EXPECT_TRUE(stream.ok()) << stream.error().message;
    std::vector<int64_t> measured;
    while (stream.ok()) {
      const auto sample = (*stream)->Next();
      EXPECT_TRUE(sample.ok()) << sample.error().message;
      if (!sample.ok() || !*sample) break;
      measured.push_back(TokensOf(tokenizer, source, **sample));
    }
    EXPECT_EQ(std::ssize(measured), kSamples);
    return measured;
  }

  fs::path data_ = fs::path(::testing::TempDir()) / StrCat("exact_lengths_", getpid());

 private:
  static int64_t TokensOf(const Tokenizer& tokenizer, const std::string& source,
                          const Sample& sample) {
    int64_t most = 0;
    std::string conversation = sample.context;
    int64_t parts = Tokens(tokenizer, conversation);  // of a conversation that is fed turn by turn
    for (const Question& question : sample.questions) {
      most = std::max(most,
                      Tokens(tokenizer, sample.context + question.text + question.answer_prefix));
      conversation += question.text;
      parts += Tokens(tokenizer, "." + question.text) - Tokens(tokenizer, ".");
    }
    const Question& first = sample.questions[0];
    if (source.starts_with("ruler_")) most += first.max_new_tokens;
    if (source == "closed_english") ++most;  // BOS
    if (sample.mode == QuestionMode::kMultiTurn) {
      most = std::max(parts, Tokens(tokenizer, conversation)) +
             first.max_new_tokens * (std::ssize(sample.questions) - 1);
    }
    return most;
  }
};

struct AskedSource {
  const char* source;
  const char* given;
  const char* beside = "";  // what makes it exact where it is not so by itself
};

const AskedSource kAsked[] = {
    {"needle", "{}"},
    {"needle", R"({"haystack": "runes"})"},
    {"passkey", "{}"},
    {"shared_context", "{}"},
    {"shared_context", R"({"mode": "multi_turn"})"},
    {"key_value", "{}", "fill"},
    {"passages", R"({"task": "count"})", "fill"},
    {"passages", "{}", "fill"},
    {"lines", "{}", "fill"},
    {"topics", R"({"turns": 2})", "fill"},
    {"topics", R"({"turns": 2, "asked": "third"})", "fill"},
    {"ruler_niah", R"({"haystack": "noise"})", "fill"},
    {"ruler_niah", "{}", "fill"},
    {"ruler_niah", R"({"haystack": "needle", "key_type": "uuids", "value_type": "uuids"})", "fill"},
    {"ruler_niah", R"({"queries": 4})", "fill"},
    {"ruler_variables", "{}", "fill"},
    {"ruler_words", "{}", "fill"},
    {"ruler_words", R"({"task": "frequent"})", "fill"},
    {"ruler_qa", "{}", "fill"},
    {"list_ops", "{}"},
    {"stream_lines", "{}", "fill"},
    {"closed_english", "{}", "fill"},
    {"closed_english", R"({"form": "pairs"})", "fill"},
    {"closed_english", R"({"form": "labels"})", "fill"},
    {"closed_english", R"({"form": "tracing"})", "fill"},
    {"closed_english", R"({"form": "passages"})", "fill"},
    {"closed_english", R"({"form": "copying"})", "fill"},
    {"closed_english", R"({"form": "story"})", "fill"},
    {"closed_english", R"({"form": "documents"})", "fill"},
    {"closed_english", R"({"form": "points"})", "fill"},
    {"closed_english", R"({"form": "examples"})", "fill"},
    {"closed_english", R"({"form": "code"})", "fill"},
};

TEST_F(ExactLengths, AreMetByEveryGenerator) {
  for (const Vocabulary& vocabulary : Vocabularies()) {
    for (const AskedSource& asked : kAsked) {
      SCOPED_TRACE(StrCat(vocabulary.name, ": ", asked.source, " ", asked.given));
      Json given = *ParseJson(asked.given, asked.source);
      if (*asked.beside != 0) given[asked.beside] = true;
      for (const int64_t length : {3970, 3983, 4011}) {
        for (const int64_t tokens : Measure(*vocabulary.tokenizer, asked.source, given, length)) {
          EXPECT_LE(tokens, length);
          EXPECT_GE(tokens, length - 1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvgauge
