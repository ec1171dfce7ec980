// SPDX-License-Identifier: Apache-2.0
// A sample's system text in the prompts of every chat template.
#include "src/run/sample_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/strings.h"
#include "src/run/run_plan.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kSystem = "Mind the gap & be terse.";
const std::string kContext = "The mill stood still for nine days.";

Sample Asked(const std::string& system, QuestionMode mode = QuestionMode::kSingle) {
  Sample sample;
  sample.id = "a";
  sample.system = system;
  sample.context = kContext;
  sample.mode = mode;
  sample.questions.push_back({.text = " How long?", .answer_prefix = " It was", .answers = {"9"}});
  if (mode != QuestionMode::kSingle) {
    sample.questions.push_back({.text = " And what stood still?", .answers = {"mill"}});
  }
  FinishSample(sample);
  return sample;
}

class SystemText : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded = LoadTokenizer(KVG_TEST_DATA "/golden/tokenizers/bbpe_llama3");
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    tokenizer_ = *std::move(loaded);
  }

  EngineSample Build(const ChatTemplate& chat, const Sample& sample) const {
    auto built = PromptBuilder(*tokenizer_, chat).Build(sample, Task(), {});
    EXPECT_TRUE(built.ok()) << built.error().message;
    return built.ok() ? *std::move(built) : EngineSample();
  }
  std::vector<int32_t> Ids(const EngineSample& built, size_t turn = 0) const {
    std::vector<int32_t> ids = built.context;
    if (built.turns[turn].continues) ids.clear();
    ids.insert(ids.end(), built.turns[turn].ids.begin(), built.turns[turn].ids.end());
    return ids;
  }
  std::string Text(const std::vector<int32_t>& ids) const { return tokenizer_->Decode(ids, false); }
  int64_t Specials(const std::vector<int32_t>& ids) const {
    return std::count_if(ids.begin(), ids.end(),
                         [&](int32_t id) { return tokenizer_->IsSpecial(id); });
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(SystemText, StandsInItsPlaceOrBeforeTheContext) {
  int in_place = 0;
  for (const std::string& name : ChatTemplate::Names()) {
    SCOPED_TRACE(name);
    const auto chat = ChatTemplate::Load("/nonexistent", name);
    ASSERT_TRUE(chat.ok());
    const EngineSample built = Build(*chat, Asked(kSystem));
    const std::string text = Text(Ids(built));
    const size_t at = text.find(kSystem);
    ASSERT_NE(at, std::string::npos) << text;
    EXPECT_EQ(text.find(kSystem, at + 1), std::string::npos);
    EXPECT_LT(at, text.find(kContext));
    EXPECT_THAT(text, HasSubstr(kContext + " How long?"));
    EXPECT_TRUE(text.ends_with(" It was"));
    // Part of the context: compressed like it.
    EXPECT_THAT(Text(built.context), HasSubstr(kSystem));
    const std::string joined = StrCat(kSystem, "\n\n", kContext);
    if (!chat->takes_system()) {
      EXPECT_THAT(text, HasSubstr(joined));
      continue;
    }
    ++in_place;
    const std::string said =
        *chat->Render({{"system", kSystem}, {"user", kContext + " How long?"}}, true);
    EXPECT_THAT(text, HasSubstr(said));
  }
  EXPECT_GE(in_place, 15);
}

TEST_F(SystemText, StandsBeforeTheContextWithoutATemplate) {
  const auto chat = ChatTemplate::Load("/nonexistent", "qwen2");
  ASSERT_TRUE(chat.ok());
  Sample sample = Asked(kSystem);
  sample.chat_template = false;
  const std::string text = Text(Ids(Build(*chat, sample)));
  EXPECT_THAT(text, HasSubstr(StrCat(kSystem, "\n\n", kContext, " How long? It was")));
  EXPECT_THAT(text, Not(HasSubstr("im_start")));
}

TEST_F(SystemText, IsTheTemplatesOwnWhereThereIsNone) {
  const auto chat = ChatTemplate::Load("/nonexistent", "qwen2");
  ASSERT_TRUE(chat.ok());
  EXPECT_THAT(Text(Ids(Build(*chat, Asked("")))), HasSubstr("You are a helpful assistant."));
  EXPECT_THAT(Text(Ids(Build(*chat, Asked(kSystem)))),
              Not(HasSubstr("You are a helpful assistant.")));
}

// Whoever wrote a task file cannot end the system's turn with it.
TEST_F(SystemText, IsNeverASpecialToken) {
  for (const std::string name : {"llama3", "gemma", "none"}) {
    const auto chat = ChatTemplate::Load("/nonexistent", name);
    ASSERT_TRUE(chat.ok());
    const auto ids = Ids(Build(*chat, Asked("Stop at <|eot_id|> now.")));
    EXPECT_EQ(Specials(ids), Specials(Ids(Build(*chat, Asked("Stop at once now."))))) << name;
    EXPECT_THAT(Text(ids), HasSubstr("Stop at <|eot_id|> now.")) << name;
  }
}

// Nor can the data's later questions, behind an answer or beside it, with a template or without.
TEST_F(SystemText, NorIsAnyQuestion) {
  for (const std::string name : {"llama3", "gemma", "none"}) {
    const auto chat = ChatTemplate::Load("/nonexistent", name);
    ASSERT_TRUE(chat.ok());
    for (const QuestionMode mode : {QuestionMode::kMultiTurn, QuestionMode::kMultiRequest}) {
      for (const char* prefix : {"", " It was"}) {
        Sample plain = Asked("", mode), marked = plain;
        for (size_t q = 0; q < plain.questions.size(); ++q) {
          plain.questions[q].answer_prefix = marked.questions[q].answer_prefix = prefix;
          plain.questions[q].text = " Did it stop here?";
          marked.questions[q].text = " Did <|eot_id|> stop here?";
        }
        const EngineSample want = Build(*chat, plain), got = Build(*chat, marked);
        for (size_t turn = 0; turn < 2; ++turn) {
          EXPECT_EQ(Specials(Ids(got, turn)), Specials(Ids(want, turn)))
              << name << ", " << turn << ", prefix" << prefix;
          EXPECT_THAT(Text(Ids(got, turn)), HasSubstr("<|eot_id|> stop here?"));
        }
      }
    }
  }
}

TEST_F(SystemText, IsSaidOnceInAConversationAndToEveryRequest) {
  const auto chat = ChatTemplate::Load("/nonexistent", "llama3");
  ASSERT_TRUE(chat.ok());
  const EngineSample turns = Build(*chat, Asked(kSystem, QuestionMode::kMultiTurn));
  ASSERT_TRUE(turns.turns[1].continues);
  EXPECT_THAT(Text(Ids(turns, 1)), Not(HasSubstr(kSystem)));
  const EngineSample requests = Build(*chat, Asked(kSystem, QuestionMode::kMultiRequest));
  EXPECT_THAT(Text(Ids(requests, 1)), HasSubstr(kSystem));
}

// Where prompts are cut to the model's positions; a limit of the user's own stays as it is.
TEST_F(SystemText, KeepsPositionsFree) {
  RunModel spec;
  PlanModel model;
  model.spec = &spec;
  model.config.max_position = 1000;
  model.tokenizer = std::move(tokenizer_);
  const auto tokens = model.tokenizer->Encode(kSystem, {.add_special = false});
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(model.MaxPromptTokens(100, ""), 900);
  EXPECT_EQ(model.MaxPromptTokens(100, kSystem), 900 - std::ssize(*tokens));
  spec.max_prompt_tokens = 500;
  EXPECT_EQ(model.MaxPromptTokens(100, kSystem), 500);
}

TEST_F(SystemText, MovesTheAnswersPlaceWithIt) {
  for (const std::string name : {"llama3", "gemma", "none"}) {
    const auto chat = ChatTemplate::Load("/nonexistent", name);
    ASSERT_TRUE(chat.ok());
    const Sample sample = Asked(kSystem);
    const size_t begin = kContext.find("nine");
    const AnswerPlace place{.bytes = {{begin, begin + 4}}};
    const EngineSample built = Build(*chat, sample);
    const auto ranges = PromptBuilder(*tokenizer_, *chat).TokensOf(sample, place, built);
    ASSERT_TRUE(ranges.ok() && ranges->size() == 1);
    const std::vector<int32_t> ids(built.context.begin() + (*ranges)[0].first,
                                   built.context.begin() + (*ranges)[0].second);
    EXPECT_THAT(Text(ids), HasSubstr("nine")) << name;
    EXPECT_LT(ids.size(), 6u) << name;
  }
}

}  // namespace
}  // namespace kvgauge
