// SPDX-License-Identifier: Apache-2.0
// Kinds of tokens, over the tokenizers of the golden files.
#include "runner/token_classes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runner/tokenizer.h"

namespace kvgauge {
namespace {

struct Kinds {
  bool special, punctuation, separator;
  bool operator==(const Kinds&) const = default;
};

Kinds KindsOf(const TokenClasses& classes, int32_t id) {
  return {classes.Has(id, TokenClass::kSpecial), classes.Has(id, TokenClass::kPunctuation),
          classes.Has(id, TokenClass::kSeparator)};
}

TEST(TokenClassesTest, AreThoseOfTheText) {
  const std::string golden = std::string(KVG_TEST_DATA) + "/golden/tokenizers";
  const std::pair<const char*, Kinds> texts[] = {
      {".", {false, true, true}},      {",", {false, true, true}},   {"?", {false, true, true}},
      {";", {false, true, true}},      {"\n", {false, false, true}}, {"(", {false, true, false}},
      {"-", {false, true, false}},     {"a", {false, false, false}}, {"7", {false, false, false}},
      {"\u3002", {false, true, true}},
  };
  int tokenizers = 0, found = 0, specials = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden)) {
    if (!entry.is_directory()) continue;
    const Result<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(entry.path());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    const auto classes = ClassifyTokens(**tokenizer);
    ++tokenizers;
    for (const auto& [text, kinds] : texts) {
      // The last token of what stands behind a word is the text alone.
      const Result<std::vector<int32_t>> ids =
          (*tokenizer)->Encode(std::string("x") + text, {.add_special = false});
      ASSERT_TRUE(ids.ok());
      if ((*tokenizer)->Decode({&ids->back(), 1}, false) != text) continue;
      ++found;
      EXPECT_EQ(KindsOf(*classes, ids->back()), kinds) << entry.path() << " '" << text << "'";
    }
    for (int32_t id = 0; id < (*tokenizer)->VocabSize(); ++id) {
      if (!(*tokenizer)->IsSpecial(id)) continue;
      ++specials;
      EXPECT_EQ(KindsOf(*classes, id), (Kinds{true, false, false})) << entry.path() << " " << id;
    }
    const auto beyond = static_cast<int32_t>((*tokenizer)->VocabSize());
    EXPECT_EQ(KindsOf(*classes, beyond), Kinds());
    EXPECT_EQ(KindsOf(*classes, -1), Kinds());
  }
  EXPECT_GE(tokenizers, 8);
  EXPECT_GE(found, 6 * tokenizers);
  EXPECT_GE(specials, tokenizers);
}

}  // namespace
}  // namespace kvgauge
