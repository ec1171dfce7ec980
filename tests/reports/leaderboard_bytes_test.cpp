// SPDX-License-Identifier: Apache-2.0
// What a leaderboard says of bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "reports/leaderboard_fixture.h"

namespace kvgauge {
namespace {

// Sums of bytes on the host like the others; means of what steps fetch.
TEST(LeaderboardBytes, TiersOfMemory) {
  Board board;
  board.Add(Cell("full"), 4, Half);
  board.Add(Cell("placed"), 4, [](int i) {
    Given g = Half(i);
    g.host = 3000;
    return g;
  });
  const LeaderboardModel made = board.Make();
  const LeaderboardLine& placed = LineOf(made.tables[0], "placed");
  EXPECT_EQ(placed.bytes.host, 3000);
  EXPECT_EQ(placed.bytes.host_ratio, 0.75);
  EXPECT_DOUBLE_EQ(placed.bytes.device_ratio(), 1060.0 / 4000);
  EXPECT_EQ(placed.bytes.host_per_token, 0.75 * placed.bytes.logical_per_token);
  EXPECT_EQ(placed.fetched_per_step, 1.5);
  const LeaderboardLine& full = LineOf(made.tables[0], "full");
  EXPECT_EQ(full.bytes.host, 0);
  EXPECT_EQ(full.bytes.device_ratio(), full.bytes.resident_ratio);
  EXPECT_FALSE(full.fetched_per_step);
}

// A question after compression is of the prompt and not in the cache, whose tokens count.
TEST(LeaderboardBytes, BytesAreOfTheTokensThatWereSeen) {
  Board board;
  for (const char* method : {"full", "snapkv"}) {
    CellRow cell = Cell(method);
    cell.model.facts = R"({"dtype":"bf16","key_dim":10,"kv_heads":2,"layers":1,"value_dim":15})";
    board.Add(cell, 3, [&](int) {
      Given g;
      g.bytes = std::string_view(method) == "full" ? 4000 : 800;
      return g;
    });
  }
  // 4000 bytes are 40 tokens of 100 bytes; prompts have 100 tokens.
  const LeaderboardModel model = board.Make();
  for (const LeaderboardLine& line : model.tables.at(0).lines) {
    EXPECT_DOUBLE_EQ(line.bytes.logical_per_token, line.method.full_cache ? 100 : 20);
  }
}

// Blocks of four tokens have an entry of 100 bytes; and layers whose heads have several sizes are
// recorded with what a token has in all of them.
TEST(LeaderboardBytes, AModelSaysWhatATokenTakes) {
  const std::pair<const char*, double> models[] = {
      {R"({"dtype":"bf16","entry_tokens":4,"key_dim":5,"kv_heads":1,"layers":5,"value_dim":5})",
       25},
      {R"({"dtype":"bf16","key_dim":5,"kv_heads":1,"layers":5,"token_numbers":80,"value_dim":5})",
       160}};
  for (const auto& [facts, token_bytes] : models) {
    Board board;
    CellRow cell = Cell("full");
    cell.model.facts = facts;
    board.Add(cell, 3, [](int) { return Given{.bytes = 4000}; });
    const LeaderboardModel model = board.Make();
    const ByteSummary& bytes = model.tables.at(0).lines.at(0).bytes;
    EXPECT_DOUBLE_EQ(bytes.logical_per_token, token_bytes);
    EXPECT_DOUBLE_EQ(bytes.logical_ratio, 1);
  }
}

// A baseline whose layers keep states alone.
TEST(LeaderboardBytes, AModelWithoutACacheTakesNoBytesAToken) {
  Board board;
  for (const char* task : {"needle/single", "needle/double"}) {
    CellRow cell = Cell("full", "none", task);
    cell.model.facts =
        R"({"dtype":"bf16","key_dim":0,"kv_heads":1,"layers":0,"state_bytes":3072,"value_dim":0})";
    board.Add(cell, 3, [](int) { return Given{.has_cache = false}; });
  }
  const LeaderboardModel model = board.Make();
  const std::string note =
      "ref-gqa: a sequence also has states of 3.0 KiB, however long it is; it has no cache, so a "
      "token adds 0 bytes";
  for (const LeaderboardTable& table : model.tables) {
    ASSERT_EQ(table.lines.size(), 1u);
    const ByteSummary& bytes = table.lines[0].bytes;
    EXPECT_EQ(bytes.samples, 3);
    EXPECT_EQ(bytes.logical_ratio, 1.0);
    EXPECT_EQ(bytes.logical_per_token, 0.0);
    EXPECT_EQ(bytes.full, 0.0);
    EXPECT_EQ(std::ranges::count(table.notes, note), 1);
  }
}

}  // namespace
}  // namespace kvgauge
