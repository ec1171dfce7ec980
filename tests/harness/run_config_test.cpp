// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "core/files.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

// What is recorded of a run reads back as the same configuration, and says the same of itself.
TEST(RunConfig, CanonicalFormsOfShippedFilesReadBack) {
  const std::string copy = StrCat(::testing::TempDir(), "kvg_canonical.json");
  int count = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(StrCat(KVG_SOURCE_DIR, "/configs/runs"))) {
    const std::string path = file.path().string();
    const Result<RunConfig> config = ReadRunConfig(path, {});
    ASSERT_TRUE(config.ok()) << config.error().message;
    std::ofstream(copy, std::ios::binary) << config->canonical;
    const Result<RunConfig> again = ReadRunConfig(copy, {});
    ASSERT_TRUE(again.ok()) << path << ": " << again.error().message;
    EXPECT_EQ(again->canonical, config->canonical) << path;
    ASSERT_EQ(again->contenders.size(), config->contenders.size()) << path;
    for (size_t i = 0; i < config->contenders.size(); ++i) {
      EXPECT_EQ(again->contenders[i].Name(), config->contenders[i].Name()) << path;
    }
    ++count;
  }
  std::filesystem::remove(copy);
  EXPECT_GE(count, 6);
}

// docs/codes.md has a row for each of these.
TEST(RunConfig, PerplexityIsRunForEveryCodeAndBasis) {
  const std::set<std::string> needs_trained_weights = {"leank", "less"};
  const Result<RunConfig> run =
      ReadRunConfig(StrCat(KVG_SOURCE_DIR, "/configs/runs/reference_perplexity.json"), {});
  ASSERT_TRUE(run.ok()) << run.error().message;
  std::set<std::string> named;
  for (const RunContender& contender : run->contenders) named.insert(contender.method.id);
  const std::string home = StrCat(KVG_SOURCE_DIR, "/configs/methods");
  for (const auto& file : std::filesystem::directory_iterator(home)) {
    const std::string id = file.path().stem().string();
    const Result<Method> method = LoadMethod(id, home, {});
    ASSERT_TRUE(method.ok()) << method.error().message;
    if (method->family != "quantization" && method->family != "low_rank") continue;
    EXPECT_NE(named.contains(id), needs_trained_weights.contains(id)) << id;
  }
}

// The board's promise is every method that suits a text model: a new method file stands in it, or
// here with what keeps it out.
TEST(RunConfig, TheBoardNamesEveryMethodOfTextModels) {
  const std::set<std::string> only_pictures = {
      "aim",           "aim_prune",          "aircache",   "calibquant",    "dart",
      "dynamic_llava", "dynamic_llava_both", "fastv",      "holov",         "prumerge",
      "prumerge_plus", "pyramiddrop",        "random_see", "random_visual", "sparsevlm",
      "streammem",     "uniform_visual",     "visionzip",  "vscan"};
  const std::set<std::string> needs_trained_weights = {
      "ccm_concat", "ccm_merge", "dmc",   "dms",          "dynamic_llava_text",
      "fastkvzip",  "kvlink",    "kvzap", "kvzap_linear", "leank",
      "less",       "locret",    "trimkv"};
  const std::set<std::string> needs_an_encoder = {"cepe", "llmlingua2"};
  const Result<RunConfig> board =
      ReadRunConfig(StrCat(KVG_SOURCE_DIR, "/configs/runs/board.json"), {});
  ASSERT_TRUE(board.ok()) << board.error().message;
  std::set<std::string> named;
  for (const RunContender& contender : board->contenders) named.insert(contender.method.id);
  for (const auto& file :
       std::filesystem::directory_iterator(StrCat(KVG_SOURCE_DIR, "/configs/methods"))) {
    const std::string id = file.path().stem().string();
    const bool left_out = only_pictures.contains(id) || needs_trained_weights.contains(id) ||
                          needs_an_encoder.contains(id);
    EXPECT_NE(named.contains(id), left_out) << id;
  }
}

TEST(RunConfig, ModelsAreNamedByTheirPaths) {
  for (const char* path :
       {"a/m", "a/m/", "a/m/config.json", "a/m.json", "a/m.gguf", "a/m-00001-of-00003.gguf"}) {
    EXPECT_EQ(NameOfPath(path), "m") << path;
  }
  EXPECT_EQ(NameOfPath("a/model-v0.2"), "model-v0.2");
}

}  // namespace
}  // namespace kvgauge
