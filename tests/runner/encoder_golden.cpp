// SPDX-License-Identifier: Apache-2.0
// Token classifiers: logits as transformers has them, words and texts as the llmlingua package
// leaves them (tests/golden/encoders).
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "core/json.h"
#include "core/strings.h"
#include "methods/word_dropping.h"
#include "runner/encoder.h"
#include "support/compare.h"
#include "support/test_ops.h"

namespace kvgauge {
namespace {

const std::string kEncoders = std::string(KVG_TEST_DATA) + "/golden/encoders/";

class TokenClassifierGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ops_ = MakeTestOps("cpu", 2);
    Result<std::unique_ptr<TokenClassifier>> loaded =
        TokenClassifier::Load(kEncoders + GetParam(), *ops_);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    encoder_ = *std::move(loaded);
    Result<Json> cases = ReadJsonFile(StrCat(kEncoders, GetParam(), "/cases.json"));
    ASSERT_TRUE(cases.ok()) << cases.error().message;
    golden_ = *std::move(cases);
  }

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<TokenClassifier> encoder_;
  Json golden_;
};

TEST_P(TokenClassifierGolden, TokensAndLogitsAreThoseOfTransformers) {
  ASSERT_GT(golden_["logits"].size(), 10u);
  for (const Json& row : golden_["logits"]) {
    const auto text = row["text"].get<std::string>();
    const auto want_ids = row["ids"].get<std::vector<int32_t>>();
    const Result<std::vector<TaggerToken>> tokens = encoder_->Cut(text);
    ASSERT_TRUE(tokens.ok()) << tokens.error().message;
    std::vector<int32_t> ids;
    for (const TaggerToken& token : *tokens) ids.push_back(token.id);
    EXPECT_EQ(ids, std::vector<int32_t>(want_ids.begin() + 1, want_ids.end() - 1)) << text;
    std::vector<float> want;
    for (const Json& pair : row["logits"]) {
      for (const Json& logit : pair) want.push_back(logit.get<float>());
    }
    const Result<std::vector<float>> logits = encoder_->Logits(ids);
    ASSERT_TRUE(logits.ok()) << logits.error().message;
    EXPECT_TRUE(AllWithin(*logits, want, 1e-4)) << text;
  }
}

// As the golden's maker counts: a token for every three bytes.
Result<std::vector<int32_t>> EveryThreeBytes(std::string_view word) {
  return std::vector<int32_t>((word.size() + 2) / 3);
}

WordRules RulesOf(const Json& row) {
  const Json& options = row["options"];
  WordRules rules;
  rules.forced = options.value("force_tokens", std::vector<std::string>());
  rules.forced_digits = options.value("force_reserve_digit", false);
  rules.drop_consecutive = options.value("drop_consecutive", false);
  rules.by_first_token = options.value("token_to_word", "mean") == "first";
  if (row["edges"] == "released") rules.edges = TextEdges::kBerts;
  return rules;
}

TEST_P(TokenClassifierGolden, WordsStayAsInThePackage) {
  ASSERT_GT(golden_["cases"].size(), 60u);
  std::map<size_t, std::vector<std::string>> words_of;
  for (const Json& row : golden_["cases"]) {
    const auto number = row["text"].get<size_t>();
    const auto text = golden_["texts"][number].get<std::string>();
    const WordRules rules = RulesOf(row);
    // The package takes the share that stays.
    const double reduce = 1 - (1 - row["reduce"].get<double>());
    const Result<DroppedWords> got = DropWords(text, rules, reduce, *encoder_, EveryThreeBytes);
    ASSERT_TRUE(got.ok()) << got.error().message;
    if (row.contains("words")) words_of.emplace(number, row["words"]);
    const std::vector<std::string> want =
        row.contains("words") ? row["words"].get<std::vector<std::string>>() : words_of.at(number);
    std::vector<std::string> words;
    for (std::string word : got->words) {
      const bool begun = encoder_->word_spelling() == WordSpelling::kBegun;
      while (begun && word.starts_with("\u2581")) word.erase(0, std::strlen("\u2581"));
      words.push_back(std::move(word));
    }
    EXPECT_EQ(words, want) << number << row["options"];
    std::string stays;
    for (const bool stay : got->stays) stays += stay ? '1' : '0';
    EXPECT_EQ(stays, row["stays"].get<std::string>()) << number << row["options"];
    EXPECT_EQ(got->text, row["left"].get<std::string>()) << number << row["options"];
  }
}

INSTANTIATE_TEST_SUITE_P(Encoders, TokenClassifierGolden, ::testing::Values("bert", "xlmr"),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace kvgauge
