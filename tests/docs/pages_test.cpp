// SPDX-License-Identifier: Apache-2.0
// Examples of docs/*.md that no command runs: a model family, a section of the report, the list of
// files of an operation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/family.h"
#include "src/report/sections.h"

namespace kvgauge {

FamilySpec FamilyOf_twig();
namespace report {
Html TimedSection(const Board& board);
}

namespace {

using ::testing::HasSubstr;

Result<ModelConfig> ReadTwig(const std::string& text) {
  KVG_ASSIGN(const Json json, ParseJson(text, "twig"));
  ModelConfig config;
  ConfigReader reader(json, "twig");
  ReadGeneralKeys(reader, config);
  FamilyOf_twig().read(reader, config);
  KVG_TRY(reader.Finish());
  return config;
}

TEST(ModelFamilyPage, ExampleReadsItsConfig) {
  const std::string text = *ReadFile(StrCat(KVG_DOC_EXAMPLES, "/models/twig/config.json"));
  const Result<ModelConfig> config = ReadTwig(text);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->layer_count(), 2);
  EXPECT_EQ(config->kv_heads, 2);
  EXPECT_EQ(config->key_dim, 32);
  EXPECT_EQ(config->max_position, 4096);
  EXPECT_TRUE(config->qk_norm && config->scale_embedding && config->tied_head);
  // What the page says about keys.
  const auto with = [&](const std::string& key) {
    Json json = *ParseJson(text, "twig");
    json[key] = key == "use_flash_attention" ? Json(true) : Json(512);
    return ReadTwig(json.dump());
  };
  EXPECT_TRUE(with("use_flash_attention").ok());
  ASSERT_FALSE(with("sliding_window").ok());
  EXPECT_THAT(with("sliding_window").error().message, HasSubstr("full attention only"));
  ASSERT_FALSE(with("new_kind_of_gate").ok());
  EXPECT_THAT(with("new_kind_of_gate").error().message, HasSubstr("new_kind_of_gate"));
}

TEST(ReportSectionPage, ExampleIsWritten) {
  report::Board board;
  board.model = "a<b";
  board.rows.resize(2);
  EXPECT_TRUE(report::TimedSection(board).empty());
  board.rows[0].times.resize(1);
  EXPECT_EQ(report::TimedSection(board).text(), "<p>a&lt;b: 1 of 2 rows were timed alone.</p>\n");
}

// The table of docs/add-an-op.md names every file that ReduceRows is in, but those that only use
// it.
TEST(OperationPage, ListsEveryFile) {
  const std::string source = KVG_SOURCE_DIR;
  std::set<std::string> listed, found;
  for (const std::string& line : Split(*ReadFile(source + "/docs/add-an-op.md"), '\n')) {
    if (line.starts_with("| `")) listed.insert(line.substr(3, line.find('`', 3) - 3));
  }
  for (const char* room : {"kernels", "harness", "tests/kernels", "tests/cuda"}) {
    for (const auto& file : std::filesystem::recursive_directory_iterator(source + "/" + room)) {
      if (!file.is_regular_file()) continue;
      const std::string path = file.path().string();
      const bool holds = ReadFile(path)->find("ReduceRows(") != std::string::npos ||
                         ReadFile(path)->find("ReduceRowsKernel") != std::string::npos;
      if (holds) found.insert(path.substr(source.size() + 1));
    }
  }
  EXPECT_EQ(listed, found);
}

}  // namespace
}  // namespace kvgauge
