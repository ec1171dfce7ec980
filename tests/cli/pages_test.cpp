// SPDX-License-Identifier: Apache-2.0
// Pages under docs/ that the program writes: no list of what there is can go stale.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cli/program.h"
#include "core/json.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PagesTest : public ProgramTest {
 protected:
  void ExpectPage(const std::string& arguments, const std::string& page) {
    const Outcome outcome = Run(arguments);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::string path = StrCat(KVG_SOURCE_DIR, "/docs/", page);
    if (std::getenv("KVG_APPROVE") != nullptr) {
      std::ofstream(path, std::ios::binary) << outcome.out;
      return;
    }
    const Result<std::string> want = ReadFile(path);
    ASSERT_TRUE(want.ok()) << want.error().message << "; run scripts/approve";
    EXPECT_EQ(outcome.out, *want) << "docs/" << page << " is out of date; run scripts/approve";
  }
};

TEST_F(PagesTest, MethodsIsAsApproved) { ExpectPage("methods --format markdown", "methods.md"); }

TEST_F(PagesTest, EveryMethodIsListed) {
  const std::string page = Run("methods --format markdown").out;
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(KVG_SOURCE_DIR) + "/configs/methods")) {
    EXPECT_THAT(page, HasSubstr("| `" + file.path().stem().string() + "` |"));
  }
}

TEST_F(PagesTest, TasksIsAsApproved) {
  // What this machine has must not show.
  ExpectPage("tasks --format markdown --data /nowhere", "tasks.md");
}

TEST_F(PagesTest, FamiliesIsAsApproved) {
  ExpectPage("inspect --families --format markdown", "families.md");
}

TEST_F(PagesTest, ArchitecturesIsAsApproved) {
  ExpectPage("inspect --shapes --times " KVG_SOURCE_DIR
             "/docs/architectures.json --format markdown",
             "architectures.md");
}

TEST_F(PagesTest, ReproductionsIsAsApproved) {
  ExpectPage("reproduce --format markdown", "reproductions.md");
}

TEST_F(PagesTest, PagesAreWhole) {
  for (const char* arguments :
       {"methods snapkv --format markdown", "methods --json --format markdown",
        "tasks reference --format markdown", "tasks --json --format markdown",
        "reproduce snapkv --format markdown", "reproduce --json --format markdown",
        "inspect --families --json --format markdown",
        "inspect --shapes --json --format markdown"}) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr("--format markdown")) << arguments;
  }
}

TEST_F(PagesTest, InspectAnswersForEveryShape) {
  int shapes = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(KVG_SOURCE_DIR) + "/configs/models")) {
    EXPECT_EQ(Run("inspect '" + file.path().string() + "'").exit_code, 0) << file.path();
    ++shapes;
  }
  EXPECT_GE(shapes, 110);
}

// The columns of the table are what the program says of each shape alone.
TEST_F(PagesTest, ShapesHaveTheBytesOfEachAlone) {
  const Outcome outcome = Run("inspect --shapes --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::map<std::string, Json> rows;
  for (const Json& row : Json::parse(outcome.out)) {
    rows[StrCat(row["shape"].get<std::string>(), " ", row["method"].get<std::string>())] = row;
  }
  for (const char* shape : {"bench-mha", "bench-s", "bench-mla", "bench-window", "bench-lckv",
                            "bench-mamba", "bench-goldfinch", "bench-block-transformer",
                            "bench-cepe", "gemma-4-e2b", "llama-4-scout", "deepseek-v3"}) {
    const Outcome alone = Run(StrCat("inspect --dtype bf16 --json '", KVG_SOURCE_DIR,
                                     "/configs/models/", shape, ".json'"));
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
    const Json facts = Json::parse(alone.out);
    const Json& row = rows.at(StrCat(shape, " full"));
    for (const char* key : {"architecture", "parameters", "kv_layers", "layers",
                            "kv_bytes_per_token", "state_bytes"}) {
      EXPECT_EQ(row[key], facts[key]) << shape << " " << key;
    }
    for (const auto& [tokens, bytes] : facts["kv_reach_bytes"].items()) {
      EXPECT_EQ(row["sequence_bytes"][tokens],
                bytes.get<int64_t>() + facts["state_bytes"].get<int64_t>())
          << shape << " at " << tokens;
    }
    if (facts["latent_bytes_per_token"].is_null()) continue;
    EXPECT_EQ(rows.at(StrCat(shape, " mla_latent"))["kv_bytes_per_token"],
              facts["latent_bytes_per_token"]);
  }
  // 61 layers of 512 numbers and 64 that turn, as DeepSeek-V3's authors count them.
  EXPECT_EQ(rows.at("deepseek-v3 mla_latent")["kv_bytes_per_token"], 61 * 576 * 2);
  // A row of the encoder's 192 columns, beside the keys and values of 2,048 tokens.
  const Json& encoded = rows.at("bench-cepe cepe");
  EXPECT_EQ(encoded["kv_bytes_per_token"], 192 * 2);
  EXPECT_EQ(encoded["sequence_bytes"]["8192"], 2048 * 36'864 + 6144 * 192 * 2);
}

TEST_F(PagesTest, InspectSaysWhatLayersHoldAndRun) {
  const std::string shapes = StrCat(KVG_SOURCE_DIR, "/configs/models/");
  const std::pair<const char*, const char*> lines[] = {
      {"gpt-oss-20b", "gated, 32 experts of 2880, 4 a token, 0 shared"},
      {"jamba-v0.1",
       "gated, 14336 wide in 16 layers; 16 experts of 14336 in 16 layers, 2 a token, 0 shared"},
      {"gemma-4-e2b", "gated, 6144 wide in 15 layers, 12288 wide in 20 layers"},
      {"gemma-4-26b-a4b", "gated, 2112 wide; 128 experts of 704, 8 a token, 0 shared"},
      {"deepseek-v3", "70,272 bytes per token as bf16, 512 numbers and 64 that turn in each layer"},
      {"mamba-2.8b", "full alone, as there is no cache"},
      {"goldfinch-1.5b", "full alone, as keys and values are made anew"},
      {"block-transformer-1.2b", "full alone, as entries are blocks of tokens"},
      {"tinyllama-lckv", "full alone, as layers read what later ones make"},
      {"gemma-4-31b", "those whose stages go by layer"},
      {"jamba-v0.1", "architecture   GQA 4:1, Mamba in 28 of 32 layers"},
      {"gemma-2-9b", "architecture   GQA 2:1, windows of 4,096 in 21 of 42 layers"},
      {"yoco-3b", "GQA 3:1, caches read by 12 more, gated retention in 13 of 26 layers"},
      {"tinyllama-lckv", "GQA 8:1, caches of later layers read by 19 more"},
      {"falcon-7b", "architecture   MQA"},
  };
  for (const auto& [shape, line] : lines) {
    EXPECT_THAT(Run(StrCat("inspect '", shapes, shape, ".json'")).out, HasSubstr(line)) << shape;
  }
}

TEST_F(PagesTest, ShapesStandBesideWhatWasMeasured) {
  const std::string times = Write("measured.json", R"({"dtype": "bf16", "cells": [
      {"model": "configs/models/bench-mha.json", "method": "full", "context_tokens": 512,
       "ttft_s": 0.25, "tpot_p50_s": 0.0125, "resident_bytes": 1048576},
      {"model": "bench-mla", "method": "mla_latent", "context_tokens": 512, "ttft_s": 0.5,
       "tpot_p50_s": 0.02, "resident_bytes": 2097152}],
      "machine": {"processor": "Abacus", "isa": "wood", "threads": 2}})");
  const Outcome page = Run(StrCat("inspect --shapes --format markdown --times ", times));
  ASSERT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(page.out, AllOf(HasSubstr("Abacus, 2 threads, wood, weights in bf16"),
                              HasSubstr("| `bench-mha` | MHA | `full` | 250 | 12.50 | 1.0 MiB |"),
                              HasSubstr("`mla_latent` | 500 | 20.00 | 2.0 MiB |")));
}

TEST_F(PagesTest, ShapesRefuseWhatTheyCannotList) {
  EXPECT_THAT(Run("inspect --shapes --families").err, HasSubstr("exclude each other"));
  EXPECT_THAT(Run("inspect --times x.json bench.json").err, HasSubstr("goes with --shapes"));
  EXPECT_THAT(Run("inspect --shapes nowhere").err, HasSubstr("'nowhere'"));
  const std::string times = Write("times.json", R"({"dtype": "bf16", "cells": [
      {"model": "bench-s", "method": "full", "context_tokens": 8, "ttft_s": "fast"}],
      "machine": {"processor": "a", "isa": "b", "threads": 1}})");
  EXPECT_THAT(Run(StrCat("inspect --shapes --times ", times)).err,
              AllOf(HasSubstr("times.json"), HasSubstr("'ttft_s'"), HasSubstr("fast")));
  const std::string other = Write("other.json", R"({"dtype": "bf16", "cells": [
      {"model": "bench-t", "method": "full", "context_tokens": 8, "ttft_s": 1, "tpot_p50_s": 1,
       "resident_bytes": 1}],
      "machine": {"processor": "a", "isa": "b", "threads": 1}})");
  EXPECT_THAT(Run(StrCat("inspect --shapes --times ", other)).err, HasSubstr("'bench-t'"));
}

TEST_F(PagesTest, InspectNeedsAModelOrFamilies) {
  const Outcome neither = Run("inspect");
  EXPECT_EQ(neither.exit_code, 2);
  EXPECT_THAT(neither.err, HasSubstr("MODEL"));
  EXPECT_EQ(Run("inspect . --families").exit_code, 2);
  EXPECT_THAT(Run("inspect --families --json").out, HasSubstr("\"deepseek_v2\""));
}

}  // namespace
}  // namespace kvgauge
