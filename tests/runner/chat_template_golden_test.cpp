// SPDX-License-Identifier: Apache-2.0
// The shipped chat templates, as transformers renders them (tests/golden/templates).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

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

TEST(ChatTemplateGolden, EveryShippedTemplateHasAFixture) {
  std::set<std::string> covered = {"none"};
  for (const std::string& name : TemplateNames()) {
    const Result<Json> golden = ReadJsonFile(kTemplates + "/" + name + ".json");
    ASSERT_TRUE(golden.ok());
    covered.insert((*golden)["shipped"].get<std::string>());
  }
  for (const std::string& name : ChatTemplate::Names()) EXPECT_TRUE(covered.contains(name)) << name;
}

class ChatTemplateGolden : public testing::TestWithParam<std::string> {};

TEST_P(ChatTemplateGolden, RendersAsTheReference) {
  Result<Json> golden = ReadJsonFile(kTemplates + "/" + GetParam() + ".json");
  ASSERT_TRUE(golden.ok());
  const std::string directory = testing::TempDir() + "/chat_golden_" + GetParam();
  std::filesystem::create_directories(directory);
  const Json config = {{"bos_token", (*golden)["bos_token"]},
                       {"eos_token", (*golden)["eos_token"]}};
  std::ofstream(directory + "/tokenizer_config.json") << config.dump();
  for (const Json& item : (*golden)["cases"]) {
    ChatSwitches switches;
    if (item.contains("variables")) {
      for (const auto& entry : item["variables"].items()) {
        switches.variables[entry.key()] = entry.value().dump();
      }
    }
    const Result<ChatTemplate> chat =
        ChatTemplate::Load(directory, (*golden)["shipped"].get<std::string>(), switches);
    ASSERT_TRUE(chat.ok()) << chat.error().message;
    std::vector<ChatMessage> messages;
    for (const Json& message : item["messages"]) {
      messages.push_back({message["role"], message["content"]});
    }
    const bool generate = item["add_generation_prompt"].get<bool>();
    const Result<std::string> text = chat->Render(messages, generate);
    const Result<std::string> same = chat->RenderJson(item["messages"].dump(), {}, generate);
    if (item.contains("error")) {
      ASSERT_FALSE(text.ok()) << item;
      if (item["error"].is_null()) continue;  // words of Python
      EXPECT_NE(text.error().message.find(item["error"].get<std::string>()), std::string::npos)
          << text.error().message << item;
      continue;
    }
    ASSERT_TRUE(text.ok()) << text.error().message << item;
    EXPECT_EQ(*text, item["rendered"].get<std::string>()) << item;
    ASSERT_TRUE(same.ok()) << same.error().message;
    EXPECT_EQ(*same, *text);
  }
  std::filesystem::remove_all(directory);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ChatTemplateGolden, testing::ValuesIn(TemplateNames()),
                         [](const auto& fixture) { return fixture.param; });

}  // namespace
}  // namespace kvgauge
