// SPDX-License-Identifier: Apache-2.0
#include "runner/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace kvgauge {
namespace {

using testing::HasSubstr;

std::string Rendered(const std::string& name, const std::vector<ChatMessage>& messages,
                     bool generate = true) {
  const Result<ChatTemplate> chat = ChatTemplate::Load("/nonexistent", name);
  EXPECT_TRUE(chat.ok());
  const Result<std::string> text = chat->Render(messages, generate);
  EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
  return text.ok() ? *text : "";
}

const std::vector<ChatMessage> kTalk = {
    {"system", "Be brief."}, {"user", " Hi "}, {"assistant", " Yes "}, {"user", "Bye"}};

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
  EXPECT_EQ(Rendered("qwen3", {{"user", "Hi"}}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(Rendered("none", {{"user", " Hi "}}), " Hi ");
}

TEST(ChatTemplate, TheDateIsPinned) {
  const Result<ChatTemplate> chat = ChatTemplate::Load("/nonexistent", "llama32");
  ASSERT_TRUE(chat.ok());
  EXPECT_THAT(*chat->Render({{"user", "Hi"}}, true), HasSubstr("Today Date: 26 Jul 2024\n"));
  EXPECT_THAT(*chat->Render({{"user", "Hi"}}, ChatOptions{.date = "1 Jan 2030"}),
              HasSubstr("Today Date: 1 Jan 2030\n"));
}

TEST(ChatTemplate, RefusesRolesTheFamilyDoesNotKnow) {
  for (const std::string& name : ChatTemplate::Names()) {
    const Result<ChatTemplate> chat = ChatTemplate::Load("/nonexistent", name);
    ASSERT_TRUE(chat.ok());
    EXPECT_FALSE(chat->Render({{"tool", "x"}}, true).ok()) << name;
    EXPECT_FALSE(chat->Render({}, true).ok()) << name;
    EXPECT_FALSE(chat->Render({{"user", "a"}, {"system", "late"}}, true).ok()) << name;
    // Ill-formed text must not be walked as if it were well-formed.
    EXPECT_TRUE(chat->Render({{"user", "\xf0\x9f"}}, true).ok()) << name;
  }
  const Result<ChatTemplate> gemma = ChatTemplate::Load("/nonexistent", "gemma");
  const Result<std::string> system = gemma->Render(kTalk, true);
  ASSERT_FALSE(system.ok());
  EXPECT_THAT(system.error().message, HasSubstr("gemma"));
}

TEST(ChatTemplate, BosIsWrittenOnce) {
  for (const std::string& name : ChatTemplate::Names()) {
    const Result<ChatTemplate> chat = ChatTemplate::Load("/nonexistent", name);
    ASSERT_TRUE(chat.ok());
    const std::string text = *chat->Render({{"user", "Hi"}}, true);
    const bool begins = text.starts_with("<s>") || text.starts_with("<bos>") ||
                        text.starts_with("<|begin_of_text|>") ||
                        text.starts_with("<｜begin▁of▁sentence｜>") ||
                        text.starts_with("[gMASK]<sop>");
    EXPECT_EQ(chat->includes_bos(), begins) << name;
  }
}

TEST(ChatTemplate, UnknownTextsAndNamesOfferAWayOut) {
  const Result<std::string> odd = ChatTemplate::Recognise("{{ messages[0].content }}");
  ASSERT_FALSE(odd.ok());
  EXPECT_THAT(odd.error().message, HasSubstr("--template none|NAME"));
  EXPECT_THAT(odd.error().message, HasSubstr("llama31"));
  // Near a family, but not of it: a later Mistral revision, a reasoning DeepSeek.
  EXPECT_FALSE(ChatTemplate::Recognise("system_message ' [INST] ' + x + ' [/INST]'").ok());
  EXPECT_FALSE(ChatTemplate::Recognise("<｜User｜> split('</think>')").ok());
  const Result<ChatTemplate> slip = ChatTemplate::Load("/nonexistent", "lama3");
  ASSERT_FALSE(slip.ok());
  EXPECT_THAT(slip.error().message, HasSubstr("did you mean 'llama3'"));
}

TEST(ChatTemplate, AutoReadsTheCheckpoint) {
  const std::string directory = testing::TempDir() + "/kvg_chat_auto";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  EXPECT_EQ(ChatTemplate::Load(directory, "auto")->name(), "none");
  std::ofstream(directory + "/tokenizer_config.json") << R"({"chat_template": [
    {"name": "tool_use", "template": "x"},
    {"name": "default", "template": "{{'<|im_start|>system\nYou are Bob.<|im_end|>\n'}}"}]})";
  const Result<ChatTemplate> bob = ChatTemplate::Load(directory, "auto");
  ASSERT_TRUE(bob.ok()) << bob.error().message;
  EXPECT_EQ(bob->name(), "chatml");
  EXPECT_THAT(*bob->Render({{"user", "Hi"}}, false), HasSubstr("system\nYou are Bob.<|im_end|>"));
  // The file beside the configuration wins.
  std::ofstream(directory + "/chat_template.jinja") << "<start_of_turn> start_of_image";
  EXPECT_EQ(ChatTemplate::Load(directory, "auto")->name(), "gemma3");
  std::ofstream(directory + "/chat_template.jinja") << "what is this";
  EXPECT_THAT(ChatTemplate::Load(directory, "auto").error().message, HasSubstr(directory));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace kvgauge
