// SPDX-License-Identifier: Apache-2.0
// Where the context stands in a prompt, for templates that trim their texts or change them.
#include "src/run/text_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/strings.h"
#include "src/run/sample_prompt.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

const std::string kTurns = "{% for m in messages %}<{{ m.role }}>";

class TextPlaces : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded = LoadTokenizer(KVG_TEST_DATA "/golden/tokenizers/bbpe_llama3");
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    tokenizer_ = *std::move(loaded);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  // A template that shows each message's content as the expression says.
  ChatTemplate Showing(const std::string& content) const {
    std::ofstream(path_) << kTurns << "{{ " << content << " }}</>{% endfor %}";
    const auto chat = ChatTemplate::Load("/nonexistent", path_);
    EXPECT_TRUE(chat.ok()) << chat.error().message;
    return *chat;
  }
  static Sample Of(const std::string& context, const std::string& question) {
    Sample sample;
    sample.id = "a";
    sample.context = context;
    sample.questions.push_back({.text = question, .answer_prefix = "", .answers = {"9"}});
    FinishSample(sample);
    return sample;
  }
  Result<EngineSample> Build(const ChatTemplate& chat, const Sample& sample,
                             const PromptRules& rules = {}) const {
    return PromptBuilder(*tokenizer_, chat).Build(sample, Task(), rules);
  }
  std::string Text(const std::vector<int32_t>& ids) const { return tokenizer_->Decode(ids, false); }
  std::vector<int32_t> All(const EngineSample& built) const {
    std::vector<int32_t> ids = built.context;
    ids.insert(ids.end(), built.turns[0].ids.begin(), built.turns[0].ids.end());
    return ids;
  }

  // Of this process: tests run side by side.
  const std::string path_ = StrCat(::testing::TempDir(), "kvg_text_places_", ::getpid(), ".jinja");
  std::unique_ptr<Tokenizer> tokenizer_;
};

// What a template trims is trimmed in what a run feeds, as in apply_chat_template.
TEST_F(TextPlaces, WhatATemplateTrimsIsTrimmed) {
  const Sample sample = Of("  The mill stood still. ", "\nHow long? Answer: \n");
  for (const std::string name : {"llama2", "llama3", "llama31", "gemma", "gemma3"}) {
    const auto chat = ChatTemplate::Load("/nonexistent", name);
    ASSERT_TRUE(chat.ok());
    const auto built = Build(*chat, sample);
    ASSERT_TRUE(built.ok()) << built.error().message;
    const std::string said =
        *chat->Render({{"user", sample.context + sample.questions[0].text}}, true);
    const auto ids =
        tokenizer_->Encode(said, {.add_special = !*BeginsWithSpecials(*tokenizer_, said)});
    EXPECT_EQ(All(*built), *ids) << name;
    EXPECT_THAT(Text(built->context), HasSubstr("The mill stood still.")) << name;
    EXPECT_EQ(Text(built->context).find("How long"), std::string::npos) << name;
  }
}

TEST_F(TextPlaces, TheContextIsFoundWhateverIsTrimmed) {
  for (const std::string content :
       {"m.content", "m.content | trim", "m.content.lstrip()", "m.content.rstrip()",
        "'[' ~ m.content | trim ~ ']'", "m.content | string", "m.content.strip('\\n')"}) {
    const ChatTemplate chat = Showing(content);
    const Sample sample = Of("\n\n The mill stood still. ", " How long? \n");
    PromptRules rules;
    rules.needs_context = true;
    const auto built = Build(chat, sample, rules);
    ASSERT_TRUE(built.ok()) << content << ": " << built.error().message;
    EXPECT_THAT(Text(built->context), HasSubstr("stood still.")) << content;
    EXPECT_EQ(Text(built->context).find("How"), std::string::npos) << content;
    EXPECT_EQ(*PromptBuilder(*tokenizer_, chat).WhyNoContext(sample), "");
    const auto ranges =
        PromptBuilder(*tokenizer_, chat).TokensOf(sample, {.bytes = {{7, 11}}}, *built);
    ASSERT_TRUE(ranges.ok() && ranges->size() == 1) << content;
    const std::vector<int32_t> ids(built->context.begin() + (*ranges)[0].first,
                                   built->context.begin() + (*ranges)[0].second);
    EXPECT_THAT(Text(ids), HasSubstr("mill")) << content;
  }
}

TEST_F(TextPlaces, ATextThatIsChangedIsNotGuessedAt) {
  for (const std::string content : {"m.content | reverse", "m.content ~ m.content", "m.content[:9]",
                                    "m.content | replace(m.content, 'other')", "m.content | length",
                                    "m.content[0] ~ m.content"}) {
    const ChatTemplate chat = Showing(content);
    const Sample sample = Of("The mill stood still.", " How long?");
    const auto why = PromptBuilder(*tokenizer_, chat).WhyNoContext(sample);
    ASSERT_TRUE(why.ok()) << why.error().message;
    EXPECT_THAT(*why, HasSubstr("the end of the context cannot be told")) << content;
    // A prompt it is all the same.
    const auto built = Build(chat, sample);
    ASSERT_TRUE(built.ok()) << built.error().message;
    const std::string said =
        *chat.Render({{"user", sample.context + sample.questions[0].text}}, true);
    EXPECT_EQ(All(*built), *tokenizer_->Encode(said)) << content;
    PromptRules rules;
    rules.needs_context = true;
    const auto refused = Build(chat, sample, rules);
    ASSERT_FALSE(refused.ok()) << content;
    EXPECT_THAT(refused.error().message, HasSubstr("compress_at prompt"));
    // Nor can a special token in the data be kept a text.
    const auto special = Build(chat, Of("Stop at <|eot_id|> now.", " How long?"));
    ASSERT_FALSE(special.ok()) << content;
    EXPECT_THAT(special.error().message, HasSubstr("<|eot_id|>"));
  }
}

TEST_F(TextPlaces, MarksOfOursInTheDataAreStepsAside) {
  const ChatTemplate chat = Showing("m.content");
  std::string sign;
  AppendUtf8(sign, 0xf8e0);
  const Sample sample = Of(StrCat("a", sign, "0", sign, "b"), StrCat(" ", sign, "How long?"));
  const auto built = Build(chat, sample, {});
  ASSERT_TRUE(built.ok()) << built.error().message;
  EXPECT_EQ(*PromptBuilder(*tokenizer_, chat).WhyNoContext(sample), "");
  EXPECT_THAT(Text(All(*built)), HasSubstr(sample.context + sample.questions[0].text));
}

TEST_F(TextPlaces, ALaterQuestionIsTextToo) {
  const auto chat = ChatTemplate::Load("/nonexistent", "llama3");
  Sample sample = Of("The mill stood still.", " How long?");
  sample.mode = QuestionMode::kMultiTurn;
  sample.questions.push_back({.text = " Say <|eot_id|> now. ", .answers = {"x"}});
  const auto built = Build(*chat, sample);
  ASSERT_TRUE(built.ok()) << built.error().message;
  ASSERT_TRUE(built->turns[1].continues);
  const auto eot = tokenizer_->IdOf("<|eot_id|>");
  const std::vector<int32_t>& ids = built->turns[1].ids;
  // The end of the answer, the end of the question: the template's own.
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *eot), 2);
  EXPECT_THAT(Text(ids), HasSubstr("\n\nSay <|eot_id|> now.<|eot_id|>"));
}

TEST_F(TextPlaces, AConversationNeedsItsEarlierAnswers) {
  std::ofstream(path_) << "{{ messages[-1].content }}";
  const auto chat = ChatTemplate::Load("/nonexistent", path_);
  Sample sample = Of("The mill stood still.", " How long?");
  sample.mode = QuestionMode::kMultiTurn;
  sample.questions.push_back({.text = "And?", .answers = {"x"}});
  const auto built = Build(*chat, sample);
  ASSERT_FALSE(built.ok());
  EXPECT_THAT(built.error().message, HasSubstr("leaves out earlier answers"));
}

}  // namespace
}  // namespace kvgauge
