// SPDX-License-Identifier: Apache-2.0
// The shipped model that does sums: it carries a chain in its answer, and methods that give up
// entries while it writes lose it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cli/run_fixture.h"

namespace kvgauge {
namespace {

class RefChainTest : public RunTest {};

TEST_F(RefChainTest, WorksOutChainsAndEvictionWhileDecodingLosesThem) {
  Write("mine.json", StrCat(R"({"models": [")", KVG_SOURCE_DIR, R"(/models/ref-chain"],
      "tasks": [{"task": "reference/chain", "source": {"lengths": "160"}}], "samples": 6,
      "methods": ["full", "kivi_4bit",
                  {"method": "snapkv", "budgets": ["160"]},
                  {"method": "decoding_random", "budgets": ["160"],
                   "overrides": {"trigger.steps": 16}}]})"));
  RunInto("r.db", {"--quiet"});
  const auto store = Open("r.db");
  std::map<std::string, double> means;
  for (const StoredCell& cell : CellsOf(*store)) {
    const std::vector<ScoreRow> scores = ScoresOf(*store, cell);
    for (const ScoreRow& row : scores) {
      EXPECT_EQ(row.status, SampleStatus::kOk) << row.sample_id;
      means[cell.cell.method.name] += row.score.value_or(0) / static_cast<double>(scores.size());
    }
  }
  // By chance, a digit is right once in ten lines.
  EXPECT_GE(means.at("full"), 0.95);
  EXPECT_GE(means.at("kivi_4bit"), 0.8);
  EXPECT_EQ(means.at("snapkv"), means.at("full")) << "it looks at the prompt, which fits";
  EXPECT_LE(means.at("decoding_random"), 0.7);
}

}  // namespace
}  // namespace kvgauge
