// SPDX-License-Identifier: Apache-2.0
// Runs whose prompts are read in chunks: what the plan says of them, and what is recorded.
#include "cli/run_fixture.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ChunkRunTest : public RunTest {
 protected:
  std::string ChunkConfig(const std::string& keys, const std::string& methods) const {
    return StrCat(R"({"models": [{"path": ")", Path("config.json"),
                  R"(", "name": "tiny", "weights": "random:5"}],
      "tasks": [{"task": "passkey", "samples": 3, "source": {"lengths": "320"},
                 "max_new_tokens": 6}],
      "budgets": ["25%"], )",
                  keys, R"("methods": [)", methods, "]}");
  }
};

TEST_F(ChunkRunTest, ThePlanSaysWhoReadsAlone) {
  const std::string methods = R"("snapkv", "h2o", "kivi_2bit")";
  const auto planned = [&](const std::string& keys) {
    Write("mine.json", ChunkConfig(keys, methods));
    return *ParseJson(Run({"plan", Path("mine.json"), "--json"}).out, "out");
  };
  const Json chunks = planned(R"("compress_at": "chunk", "chunk_tokens": 128, )");
  const Json whole = planned("");
  ASSERT_EQ(chunks["groups"].size(), 1u);
  const Json own = chunks["groups"][0]["own_prefills"];
  EXPECT_EQ(own["rows"], (Json{"snapkv 25%", "h2o 25%"}));
  EXPECT_EQ(own["prefills"], 2 * 3);
  EXPECT_GT(own["seconds"], 0.0);
  EXPECT_GT(own["bytes"], 0);
  EXPECT_EQ(whole["groups"][0]["own_prefills"]["prefills"], 0);
  EXPECT_NEAR(chunks["seconds"].get<double>(),
              whole["seconds"].get<double>() + own["seconds"].get<double>(), 1e-9);
  Write("mine.json", ChunkConfig(R"("compress_at": "chunk", "chunk_tokens": 128, )", methods));
  EXPECT_THAT(Run({"plan", Path("mine.json")}).out,
              AllOf(HasSubstr("chunk 128"), HasSubstr("shared, 2 own"),
                    HasSubstr("snapkv 25%, h2o 25% read prompts in chunks, 6 prefills of their")));
}

// Cells have a place of their own, by the size of chunks; the full cache has the bits that it has
// on whole prompts, and what reduces prompts has not.
TEST_F(ChunkRunTest, CellsAreRecordedByTheSizeOfChunks) {
  const std::string methods = R"("streaming_llm", "h2o")";
  Write("mine.json",
        ChunkConfig(R"("compress_at": ["prompt", "chunk"], "chunk_tokens": 128, "fidelity_steps": 3,
                       "latency": {"contexts": [300], "repetitions": 1, "decode_steps": 2}, )",
                    methods));
  RunInto("r.db");
  const std::string recorded = (*Open("r.db")->Runs())[0].run.config;
  EXPECT_EQ((*ParseJson(recorded, "config"))["chunk_tokens"], 128);
  const auto store = Open("r.db");
  std::map<std::pair<std::string, std::string>, StoredCell> cells;
  for (const StoredCell& cell : CellsOf(*store)) {
    cells[{cell.cell.method.name, cell.cell.compress_at}] = cell;
  }
  ASSERT_EQ(cells.size(), 6u);
  for (const char* method : {"full", "streaming_llm", "h2o"}) {
    const StoredCell& chunked = cells.at({method, "chunk 128"});
    const std::vector<ScoreRow> scores = ScoresOf(*store, chunked);
    ASSERT_EQ(scores.size(), 3u) << method;
    EXPECT_EQ(store->Latency(chunked.id)->size(), 1u) << method;
    for (const ScoreRow& row : scores) EXPECT_EQ(row.status, SampleStatus::kOk) << method;
    const std::string all = CanonicalJson(*ParseJson(chunked.cell.signature, "signature"));
    EXPECT_THAT(all, HasSubstr(R"("chunk_tokens":128)"));
  }
  EXPECT_EQ(FirstOf(*store, cells.at({"full", "chunk 128"})).answers[0].prediction,
            FirstOf(*store, cells.at({"full", "prompt"})).answers[0].prediction);
  const SampleRow whole = FirstOf(*store, cells.at({"h2o", "prompt"})),
                  chunked = FirstOf(*store, cells.at({"h2o", "chunk 128"}));
  ASSERT_TRUE(whole.kl_divergence && chunked.kl_divergence);
  EXPECT_NE(*whole.kl_divergence, *chunked.kl_divergence);
  // Another size is another place, and what is recorded is not run again.
  Write("mine.json", ChunkConfig(R"("compress_at": "chunk", "chunk_tokens": 100, )", methods));
  EXPECT_EQ((*ParseJson(RunInto("r.db", {"--json"}).out, "out"))["cells"], 9);
  EXPECT_EQ((*ParseJson(RunInto("r.db", {"--json"}).out, "out"))["cells"], 0);
  EXPECT_THAT(Run({"leaderboard", Path("r.db")}).out,
              AllOf(HasSubstr("compressed at chunk 128"), HasSubstr("compressed at chunk 100")));
}

// What cannot read prompts in chunks is left out with the reason, before any prefill.
TEST_F(ChunkRunTest, WhatCannotIsSkippedWithTheReason) {
  Write("mine.json", ChunkConfig(R"("compress_at": "chunk", "chunk_tokens": 48, )",
                                 R"("kvzip", "cake", "snapkv", "streaming_llm")"));
  const std::string said = Run({"plan", Path("mine.json")}).out;
  EXPECT_THAT(said, AllOf(HasSubstr("kvzip: score.kvzip runs the model behind a prompt"),
                          HasSubstr("cake: allocate.cake shares entries out"),
                          HasSubstr("snapkv: chunk_tokens 48 is too small"),
                          HasSubstr("expected 64 or more"), Not(HasSubstr("streaming_llm: "))));
  const Json done = *ParseJson(RunInto("r.db", {"--json"}).out, "out");
  EXPECT_EQ(done["skipped"], 3 * 3);
  EXPECT_EQ(done["failed"], 0);
}

}  // namespace
}  // namespace kvgauge
