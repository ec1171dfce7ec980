// SPDX-License-Identifier: Apache-2.0
#include "runner/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

using testing::HasSubstr;

const std::vector<ChatMessage> kTalk = {
    {"system", "Be brief."}, {"user", " Hi "}, {"assistant", " Yes "}, {"user", "Bye"}};

std::string Rendered(const std::string& name, const std::vector<ChatMessage>& messages,
                     bool generate = true, const ChatSwitches& switches = {}) {
  const Result<ChatTemplate> chat = ChatTemplate::Load("/nonexistent", name, switches);
  EXPECT_TRUE(chat.ok()) << chat.error().message;
  if (!chat.ok()) return "";
  const Result<std::string> text = chat->Render(messages, generate);
  EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
  return text.ok() ? *text : "";
}

std::string Refused(const std::string& directory, const std::string& name,
                    const ChatSwitches& switches = {}) {
  const Result<ChatTemplate> chat = ChatTemplate::Load(directory, name, switches);
  EXPECT_FALSE(chat.ok());
  return chat.ok() ? "" : chat.error().message;
}

TEST(ChatTemplate, ByName) {
  EXPECT_EQ(Rendered("llama2", kTalk),
            "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n Hi [/INST] Yes </s><s>[INST] Bye [/INST]");
  EXPECT_EQ(Rendered("llama3", {{"user", " Hi "}}),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(Rendered("mistral_v1", {{"user", "a"}, {"assistant", "b"}, {"user", "c"}}),
            "<s>[INST] a [/INST]b</s> [INST] c [/INST]");
  EXPECT_EQ(Rendered("qwen25", {{"user", "Hi"}}),
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
            "assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(Rendered("none", {{"user", " Hi "}}), " Hi ");
}

TEST(ChatTemplate, ThinkingIsOffUnlessItIsAskedFor) {
  const std::string open = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(Rendered("qwen3", {{"user", "Hi"}}), open + "<think>\n\n</think>\n\n");
  EXPECT_EQ(Rendered("qwen3", {{"user", "Hi"}}, true, {.variables = {{"enable_thinking", "true"}}}),
            open);
}

TEST(ChatTemplate, TheDateIsPinned) {
  EXPECT_THAT(Rendered("llama32", {{"user", "Hi"}}), HasSubstr("Today Date: 26 Jul 2024\n"));
  EXPECT_THAT(Rendered("llama32", {{"user", "Hi"}}, true, {.date = "2030-01-31"}),
              HasSubstr("Today Date: 31 Jan 2030\n"));
  for (const std::string date : {"26 Jul 2024", "2024-13-01", "2023-02-29", "2024-7-26", ""}) {
    EXPECT_THAT(Refused("/nonexistent", "llama32", {.date = date}), HasSubstr("YYYY-MM-DD"));
  }
}

TEST(ChatTemplate, SwitchesMustBeRead) {
  EXPECT_THAT(Refused("/nonexistent", "qwen3", {.variables = {{"enable_thinkin", "true"}}}),
              HasSubstr("did you mean 'enable_thinking'"));
  EXPECT_THAT(Refused("/nonexistent", "none", {.variables = {{"enable_thinking", "true"}}}),
              HasSubstr("no chat template"));
  EXPECT_THAT(Refused("/nonexistent", "qwen3", {.variables = {{"messages", "[]"}}}),
              HasSubstr("not a switch"));
}

// Whatever moves a prompt moves the signature; a name does not.
TEST(ChatTemplate, TheSignatureHoldsHashAndSwitches) {
  const auto signature = [](const std::string& name, const ChatSwitches& switches = {}) {
    return ChatTemplate::Load("/nonexistent", name, switches)->Signature();
  };
  EXPECT_EQ(signature("none"), "none");
  const Json qwen3 = signature("qwen3");
  EXPECT_EQ(qwen3["sha256"].get<std::string>().size(), 64u);
  EXPECT_EQ(qwen3["variables"]["enable_thinking"], false);
  EXPECT_EQ(qwen3["variables"]["add_generation_prompt"], true);
  EXPECT_FALSE(qwen3.contains("date"));
  EXPECT_NE(qwen3, signature("qwen3", {.variables = {{"enable_thinking", "true"}}}));
  EXPECT_EQ(signature("llama32")["date"], "2024-07-26");
  EXPECT_NE(signature("llama32"), signature("llama32", {.date = "2030-01-31"}));
  EXPECT_NE(signature("llama3"), signature("llama31"));
  EXPECT_EQ(signature("yi"), signature("chatml"));  // one text
}

TEST(ChatTemplate, TellsWhetherItShowsASystemMessage) {
  const auto takes = [](const std::string& name) {
    return ChatTemplate::Load("/nonexistent", name)->takes_system();
  };
  for (const std::string name : {"llama2", "llama3", "mistral_v3", "qwen3", "gemma3", "glm4"}) {
    EXPECT_TRUE(takes(name)) << name;
  }
  // The second drops it without a word.
  for (const std::string name : {"gemma", "phi3_v1", "mistral_v1", "none"}) {
    EXPECT_FALSE(takes(name)) << name;
  }
}

TEST(ChatTemplate, IllFormedTextIsRepaired) {
  for (const std::string& name : ChatTemplate::Names()) {
    EXPECT_THAT(Rendered(name, {{"user", "\xf0\x9f"}}), HasSubstr("\ufffd")) << name;
  }
}

TEST(ChatTemplate, TheTemplatesOwnWordsAreTheError) {
  const Result<ChatTemplate> gemma = ChatTemplate::Load("/nonexistent", "gemma");
  const Result<std::string> system = gemma->Render(kTalk, true);
  ASSERT_FALSE(system.ok());
  EXPECT_THAT(system.error().message, HasSubstr("the shipped template gemma: line "));
  EXPECT_THAT(system.error().message, HasSubstr("System role not supported"));
  EXPECT_FALSE(gemma->Render({}, true).ok());
}

class OfCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void Write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = directory_ + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string Hi(const std::string& name = "auto") const {
    const Result<ChatTemplate> chat = ChatTemplate::Load(directory_, name);
    EXPECT_TRUE(chat.ok()) << chat.error().message;
    return chat.ok() ? chat->Render({{"user", " Hi "}}, true).value() : "";
  }

  const std::string directory_ = StrCat(testing::TempDir(), "kvg_chat_auto_", ::getpid());
};

TEST_F(OfCheckpoint, WithoutATemplateIsNone) {
  EXPECT_EQ(ChatTemplate::Load(directory_, "auto")->name(), "none");
  EXPECT_EQ(Hi(), " Hi ");
}

TEST_F(OfCheckpoint, SeveralByName) {
  Write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": null,
    "chat_template": [{"name": "tool_use", "template": "T{{ messages[0].content }}"},
                      {"name": "default", "template": "{{ bos_token }}{{ eos_token is defined }}"}]})");
  EXPECT_EQ(Hi(), "<s>False");
  EXPECT_EQ(Hi("tool_use"), "T Hi ");
  EXPECT_EQ(ChatTemplate::Load(directory_, "tool_use")->name(), "checkpoint:tool_use");
  EXPECT_THAT(Refused(directory_, "tool_us"), HasSubstr("did you mean 'tool_use'"));
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_THAT(Refused(directory_, "auto"), HasSubstr("choose one with --template: rag"));
  Write("tokenizer_config.json", R"({"chat_template": 7})");
  EXPECT_THAT(Refused(directory_, "auto"), HasSubstr("must be a text, or a list"));
}

TEST_F(OfCheckpoint, FilesComeBeforeTheConfiguration) {
  Write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(Hi(), "json");
  Write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(Hi(), "config");
  Write("chat_template.jinja", "file");
  Write("additional_chat_templates/rag.jinja", "rag");
  EXPECT_EQ(Hi(), "file");
  EXPECT_EQ(Hi("rag"), "rag");
  Write("own.jinja", "own {{ messages | length }}");
  EXPECT_EQ(Hi(directory_ + "/own.jinja"), "own 1");
}

// A template that carries another's marks is itself all the same.
TEST_F(OfCheckpoint, MarksOfAFamilyMeanNothing) {
  Write(
      "tokenizer_config.json",
      R"({"chat_template": "{{ '<|im_start|>' }}{% for m in messages %}[{{ m.content }}]{% endfor %}"})");
  EXPECT_EQ(Hi(), "<|im_start|>[ Hi ]");
}

TEST_F(OfCheckpoint, WhatCannotBeReadNamesFileLineAndConstruct) {
  Write("chat_template.jinja", "a\n{% include 'x' %}");
  const std::string file = directory_ + "/chat_template.jinja: line 2: ";
  EXPECT_THAT(Refused(directory_, "auto"), HasSubstr(file + "{% include %}"));
  Write("chat_template.jinja", "a\n{{ messages | nofilter }}");
  EXPECT_THAT(Refused(directory_, "auto"), HasSubstr(file + "No filter named 'nofilter'"));
  Write("chat_template.jinja", "a\n{{ messages.__class__ }}");
  const Result<ChatTemplate> chat = ChatTemplate::Load(directory_, "auto");
  ASSERT_TRUE(chat.ok());
  EXPECT_THAT(chat->Render({{"user", "x"}}, true).error().message,
              HasSubstr(file + "the attribute '__class__'"));
  EXPECT_THAT(Refused(directory_, "lama3"), HasSubstr("did you mean 'llama3'"));
}

TEST_F(OfCheckpoint, TakesPartsAndTools) {
  Write("chat_template.jinja",
        "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
        "{{ tools | tojson }}");
  const Result<ChatTemplate> chat = ChatTemplate::Load(directory_, "auto");
  ASSERT_TRUE(chat.ok());
  const Result<std::string> text = chat->RenderJson(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"text": "b"}]}])",
      {{"tools", R"([{"z": 1, "a": 2}])"}}, true);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, R"(ab[{"z": 1, "a": 2}])");
}

}  // namespace
}  // namespace kvgauge
