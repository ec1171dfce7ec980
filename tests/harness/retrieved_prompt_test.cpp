// SPDX-License-Identifier: Apache-2.0
#include "src/serve/retrieved_prompt.h"

#include <gmock/gmock.h>

#include "core/files.h"
#include "core/json.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

TEST(RetrievedPromptTest, IsWhatTheOracleFinds) {
  const Result<Json> json = ReadJsonFile(KVG_SOURCE_DIR "/tests/golden/retrieval/bm25.json");
  ASSERT_TRUE(json.ok()) << json.error().message;
  ASSERT_GE(json->at("cases").size(), 6u);
  for (const Json& one : json->at("cases")) {
    const Json& ask = one["ask"];
    const Retrieval retrieval = {.chunk = ask["chunk"],
                                 .tokens = ask["tokens"],
                                 .shorten = ask["shorten"],
                                 .first = ask["first"],
                                 .question = ask["question"]};
    const auto prompt = one["prompt"].get<std::vector<int32_t>>();
    EXPECT_EQ(RetrievedPrompt(prompt, retrieval), one["left"].get<std::vector<int32_t>>())
        << retrieval.ToString();
  }
}

TEST(RetrievedPromptTest, ShortPromptsStayWhole) {
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5};
  EXPECT_EQ(RetrievedPrompt(prompt, {}), prompt);
  EXPECT_EQ(RetrievedPrompt(prompt, {.chunk = 1, .tokens = 1, .question = 9}), prompt);
  EXPECT_THAT(RetrievedPrompt(prompt, {.chunk = 1, .tokens = 1, .first = 1, .question = 1}),
              ElementsAre(1, 2, 5));
}

}  // namespace
}  // namespace kvgauge
