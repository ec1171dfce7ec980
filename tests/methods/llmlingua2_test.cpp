// SPDX-License-Identifier: Apache-2.0
// Which texts of a prompt an encoder is asked about, and what takes their place. Whether words stay
// as they should is told by tests/runner/encoder_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "methods/rewriting_thin.h"
#include "methods/word_dropping.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Every character is a token; capitals are likely to stay. Words begin at capitals and dots.
class Capitals final : public TokenTagger {
 public:
  WordSpelling word_spelling() const override { return WordSpelling::kContinued; }
  int64_t most_tokens() const override { return 512; }
  Result<std::vector<TaggerToken>> Cut(std::string_view text) const override {
    std::vector<TaggerToken> tokens;
    for (const char c : text) tokens.push_back({c, std::string(1, c), c == '?'});
    return tokens;
  }
  std::string Join(std::span<const std::string> spellings) const override {
    std::string text;
    for (const std::string& spelling : spellings) text += spelling;
    return text;
  }
  Result<std::vector<float>> Chances(std::span<const int32_t> ids, TextEdges) override {
    asked.emplace_back(ids.begin(), ids.end());
    std::vector<float> chances;
    for (const int32_t id : ids) chances.push_back(id < 'a' ? 0.9f : 0.1f);
    return chances;
  }
  std::vector<std::string> asked;
};

// A prompt of letters; '#' shows a picture.
class Letters final : public SpelledPrompt {
 public:
  explicit Letters(std::string text) : text_(std::move(text)) {}
  int64_t rows() const override { return std::ssize(text_); }
  bool IsText(int64_t row) const override { return text_[static_cast<size_t>(row)] != '#'; }
  std::string Spell(int64_t begin, int64_t end) const override {
    return text_.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }
  Result<std::vector<int32_t>> Encode(std::string_view text) const override {
    std::vector<int32_t> ids(text.begin(), text.end());
    for (int i = 0; i < more; ++i) ids.push_back('!');
    return ids;
  }
  Result<TokenTagger*> Tagger() const override {
    if (tagger != nullptr) return tagger;
    return BadInput("no encoder");
  }

  int more = 0;  // tokens that come with every text
  TokenTagger* tagger = nullptr;

 private:
  std::string text_;
};

Result<std::vector<TextChange>> Rewrite(const std::string& params, const SpelledPrompt& prompt) {
  const auto stage = MakeStage<Thin>(StageKind::kThin, "llmlingua2", params);
  return dynamic_cast<const RewritingThin&>(*stage).Rewrite(prompt);
}

std::string TextOf(const TextChange& change) {
  return std::string(change.ids.begin(), change.ids.end());
}

TEST(LlmLingua2Test, TheEndsOfAPromptAndPicturesStay) {
  Capitals encoder;
  Letters prompt("xxAbCd##eFghyy");
  prompt.tagger = &encoder;
  const auto changes = Rewrite(R"({"sinks": 2, "recent": 2, "drop": 0.3})", prompt);
  ASSERT_TRUE(changes.ok()) << changes.error().message;
  EXPECT_THAT(encoder.asked, ElementsAre("AbCd", "eFgh"));
  ASSERT_EQ(changes->size(), 2u);
  EXPECT_EQ((*changes)[0].begin, 2);
  EXPECT_EQ((*changes)[0].end, 6);
  EXPECT_EQ(TextOf((*changes)[0]), "AC");
  EXPECT_EQ((*changes)[1].begin, 8);
  EXPECT_EQ((*changes)[1].end, 12);
  EXPECT_EQ(TextOf((*changes)[1]), "F");
}

TEST(LlmLingua2Test, NothingIsAskedWhereNothingIsToLeave) {
  Letters prompt("AbCdEfGh");
  EXPECT_TRUE(Rewrite(R"({"sinks": 0, "recent": 1, "drop": 0})", prompt)->empty());
  EXPECT_TRUE(Rewrite(R"({"sinks": 4, "recent": 4})", prompt)->empty());
  EXPECT_THAT(Rewrite(R"({"sinks": 0, "recent": 1})", prompt).error().message, "no encoder");
}

TEST(LlmLingua2Test, ATextThatGrewIsNotTaken) {
  Capitals encoder;
  Letters prompt("abCdefy");
  prompt.tagger = &encoder;
  const std::string params = R"({"sinks": 0, "recent": 1, "drop": 0.5})";
  prompt.more = 5;
  EXPECT_EQ(TextOf(Rewrite(params, prompt)->at(0)), "C!!!!!");
  prompt.more = 6;
  EXPECT_TRUE(Rewrite(params, prompt)->empty());
}

TEST(LlmLingua2Test, NeedsAnEncoderAndNoMoreForcedWordsThanMarks) {
  const auto refusal = [](const std::string& params) {
    const Status status =
        MakeStage<Thin>(StageKind::kThin, "llmlingua2", params)->Check(SmallShape());
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_THAT(refusal("{}"), HasSubstr("encoder names no checkpoint; expected the directory"));
  std::string words;
  for (int i = 0; i < 101; ++i) words += "w ";
  EXPECT_THAT(refusal(R"({"encoder": "x", "positions": "kept", "force_tokens": ")" + words + "\"}"),
              HasSubstr("force_tokens has 101 words; expected at most 100"));
}

// Words count as often as they have tokens, and a percentile of equal chances drops them all.
TEST(DropWordsTest, AWordCountsByItsTokens) {
  Capitals encoder;
  const auto left = [&](std::string_view text, double reduce, const WordRules& rules = {}) {
    const auto count = [](std::string_view word) -> Result<std::vector<int32_t>> {
      return std::vector<int32_t>(word.size());
    };
    return DropWords(text, rules, reduce, encoder, count)->text;
  };
  EXPECT_EQ(left("abC", 0.5), "C");
  EXPECT_EQ(left("ABC", 0.5), "");
  EXPECT_EQ(left("", 0.5), "");
  EXPECT_EQ(left("a", 0.5), "");
  EXPECT_EQ(left("?", 0.5), "");  // no word at all
  WordRules rules;
  rules.forced_digits = true;
  EXPECT_EQ(left("ABc1", 0.5, rules), "1");
  rules.forced = {"."};
  EXPECT_EQ(left("ab.cd", 0.5, rules), ".");
  EXPECT_EQ(left("ab..cd", 0.5, rules), "..");
  rules.drop_consecutive = true;
  EXPECT_EQ(left("ab..cd", 0.5, rules), ".");
}

}  // namespace
}  // namespace kvgauge
