// SPDX-License-Identifier: Apache-2.0
// Generated samples of a requested number of tokens, counted with tokenizers of every kind that the
// model families use: never above, and one below at most where the source says so or is asked to.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
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

std::vector<std::string> Vocabularies() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(KVG_TEST_DATA "/golden/tokenizers")) {
    const std::string name = entry.path().filename();
    if (entry.is_directory() && name != "opt_files") names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

// Encodes a text once: lengths and generators share most of the texts that they count, and an
// encoding follows from its text alone.
class RememberedCodec final : public TextCodec {
 public:
  explicit RememberedCodec(const Tokenizer& tokenizer) : codec_(tokenizer) {}

  Result<std::vector<int32_t>> Encode(std::string_view text, bool add_special) const override {
    const auto [found, is_new] = (add_special ? framed_ : plain_).try_emplace(std::string(text));
    if (is_new) {
      KVG_ASSIGN(found->second, codec_.Encode(text, add_special));
    }
    return found->second;
  }
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const override {
    return codec_.Decode(ids, skip_special);
  }

 private:
  using Texts = std::unordered_map<std::string, std::vector<int32_t>>;
  const TokenizerCodec codec_;
  mutable Texts plain_, framed_;
};

// One vocabulary; several are looked at side by side.
class ExactLengths : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto loaded = LoadTokenizer(StrCat(KVG_TEST_DATA "/golden/tokenizers/", GetParam()));
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    tokenizer_ = *std::move(loaded);
    codec_ = std::make_unique<RememberedCodec>(*tokenizer_);
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
  std::vector<int64_t> Measure(const std::string& source, Json given, int64_t length) const {
    const SourceSpec* spec = FindSource(source);
    given["lengths"] = std::to_string(length);
    const bool needle = source == "needle";
    given[needle ? "repeats" : "samples"] = kSamples;
    if (needle || source == "key_value") given["depths"] = "50";
    const auto params = Params::Parse(spec->params, given, source);
    EXPECT_TRUE(params.ok()) << params.error().message;
    TaskOptions options;
    options.codec = codec_.get();
    options.seed = 11;
    options.data_directory = data_.string();
    const auto stream = spec->open(*params, Json(), options);
    EXPECT_TRUE(stream.ok()) << stream.error().message;
    std::vector<int64_t> measured;
    while (stream.ok()) {
      const auto sample = (*stream)->Next();
      EXPECT_TRUE(sample.ok()) << sample.error().message;
      if (!sample.ok() || !*sample) break;
      measured.push_back(TokensOf(source, **sample));
    }
    EXPECT_EQ(std::ssize(measured), kSamples);
    return measured;
  }

  fs::path data_ = fs::path(::testing::TempDir()) / StrCat("exact_lengths_", getpid());
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<const RememberedCodec> codec_;

 private:
  int64_t Tokens(const std::string& text) const { return std::ssize(*codec_->Encode(text, false)); }

  int64_t TokensOf(const std::string& source, const Sample& sample) const {
    int64_t most = 0;
    std::string conversation = sample.context;
    int64_t parts = Tokens(conversation);  // of a conversation that is fed turn by turn
    for (const Question& question : sample.questions) {
      most = std::max(most, Tokens(sample.context + question.text + question.answer_prefix));
      conversation += question.text;
      parts += Tokens("." + question.text) - Tokens(".");
    }
    const Question& first = sample.questions[0];
    if (source.starts_with("ruler_")) most += first.max_new_tokens;
    if (source == "closed_english") ++most;  // BOS
    if (sample.mode == QuestionMode::kMultiTurn) {
      most = std::max(parts, Tokens(conversation)) +
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

TEST_P(ExactLengths, AreMetByEveryGenerator) {
  for (const AskedSource& asked : kAsked) {
    SCOPED_TRACE(StrCat(asked.source, " ", asked.given));
    Json given = *ParseJson(asked.given, asked.source);
    if (*asked.beside != 0) given[asked.beside] = true;
    for (const int64_t length : {3970, 3983, 4011}) {
      for (const int64_t tokens : Measure(asked.source, given, length)) {
        EXPECT_LE(tokens, length);
        EXPECT_GE(tokens, length - 1);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExactLengths, testing::ValuesIn(Vocabularies()),
                         [](const auto& vocabulary) { return vocabulary.param; });

TEST(ExactLengthsOf, ManyVocabularies) { EXPECT_GE(Vocabularies().size(), 12u); }

}  // namespace
}  // namespace kvgauge
