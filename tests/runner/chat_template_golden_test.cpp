// SPDX-License-Identifier: Apache-2.0
// Conversations as the reference renders the templates of tests/golden/templates.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "runner/chat_template.h"

namespace kvgauge {
namespace {

const std::string kTemplates = std::string(KVG_TEST_DATA) + "/golden/templates";

std::vector<std::string> TemplateNames() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(kTemplates, ignored)) {
    if (entry.path().extension() == ".json" && entry.path().stem() != "jinja") {
      names.push_back(entry.path().stem());
    }
  }
  return names;
}

// The family that a fixture's file name stands for.
std::string FamilyOf(const std::string& fixture) {
  if (fixture == "llama31_default_date") return "llama31";
  if (fixture == "phi3_first_revision") return "phi3_v1";
  if (fixture.starts_with("mistral_v0")) return "mistral_v" + fixture.substr(10);
  return fixture;
}

TEST(ChatTemplateGolden, HasFixtures) { EXPECT_GE(TemplateNames().size(), 20u); }

class ChatTemplateGolden : public testing::TestWithParam<std::string> {};

TEST_P(ChatTemplateGolden, RendersAsTheReference) {
  Result<Json> golden = ReadJsonFile(kTemplates + "/" + GetParam() + ".json");
  ASSERT_TRUE(golden.ok());
  const std::string directory = testing::TempDir() + "/chat_golden_" + GetParam();
  std::filesystem::create_directories(directory);
  const Json config = {{"chat_template", (*golden)["template"]},
                       {"bos_token", (*golden)["bos_token"]},
                       {"eos_token", (*golden)["eos_token"]}};
  std::ofstream(directory + "/tokenizer_config.json") << config.dump();
  const Result<ChatTemplate> chat = ChatTemplate::Load(directory, "auto");
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_EQ(chat->name(), FamilyOf(GetParam()));
  for (const Json& item : (*golden)["cases"]) {
    std::vector<ChatMessage> messages;
    bool has_system = false;
    for (const Json& message : item["messages"]) {
      messages.push_back({message["role"], message["content"]});
      has_system |= message["role"] == "system";
    }
    ChatOptions options{.add_generation_prompt = item["add_generation_prompt"].get<bool>()};
    if (item.contains("variables")) {
      options.date = item["variables"].value("date_string", options.date);
    }
    const Result<std::string> text = chat->Render(messages, options);
    // The reference drops the system message here without a word; to refuse is kinder.
    const bool dropped = has_system && chat->name() == "phi3_v1";
    if (item.contains("error") || dropped) {
      EXPECT_FALSE(text.ok()) << item;
      continue;
    }
    ASSERT_TRUE(text.ok()) << text.error().message << item;
    EXPECT_EQ(*text, item["rendered"].get<std::string>()) << item;
  }
  std::filesystem::remove_all(directory);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ChatTemplateGolden, testing::ValuesIn(TemplateNames()),
                         [](const auto& fixture) { return fixture.param; });

}  // namespace
}  // namespace kvgauge
