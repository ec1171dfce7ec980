// SPDX-License-Identifier: Apache-2.0
// Runs of methods that put tokens of their own into prompts.
#include "cli/run_fixture.h"

namespace kvgauge {
namespace {

class ReuseRunTest : public RunTest {};

// These tokens count as bytes of the method; the full cache that it is held against has none.
TEST_F(ReuseRunTest, TrainedTokensAreNoPartOfTheFullCache) {
  Write("mine.json", StrCat(R"({"models": [{"path": ")", Path("config.json"),
                            R"(", "name": "tiny", "weights": "random:5"}],
      "tasks": [{"task": "passkey", "samples": 2, "source": {"lengths": "320"},
                 "max_new_tokens": 4}],
      "methods": ["full", {"method": "kvlink", "overrides": {"reuse.chunk": 64, "reuse.first": 700,
                           "reuse.begin": 698, "reuse.end": 699}}]})"));
  RunInto("r.db");
  const auto store = Open("r.db");
  std::map<std::string, SampleRow> rows;
  for (const StoredCell& cell : CellsOf(*store))
    rows[cell.cell.method.name] = FirstOf(*store, cell);
  ASSERT_EQ(rows.size(), 2u);
  const std::vector<MemoryRow>& full = rows.at("full").memory;
  const std::vector<MemoryRow>& linked = rows.rbegin()->second.memory;
  EXPECT_EQ(linked.at(0).full_bytes, full.at(0).full_bytes);
  // An entry is two layers' two heads' key and value of 32 numbers.
  constexpr int64_t kEntryBytes = 2 * 2 * 2 * 32 * 4;
  for (const size_t moment : {0, 1}) {
    EXPECT_EQ(full.at(moment).payload_bytes, full.at(moment).full_bytes);
    const int64_t more = linked.at(moment).payload_bytes - linked.at(moment).full_bytes;
    EXPECT_EQ(more % kEntryBytes, 0);
    // Two marks, and five tokens for each of some chunks.
    EXPECT_GT(more / kEntryBytes, 2);
    EXPECT_EQ((more / kEntryBytes - 2) % 5, 0);
  }
}

}  // namespace
}  // namespace kvgauge
