// SPDX-License-Identifier: Apache-2.0
// Files of every released schema open, hold what they held, and have the tables of a new file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>

#include "core/files.h"
#include "core/strings.h"
#include "reports/store_fixture.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void MakeVersion(int version, const std::string& path) {
  const std::string sql =
      Must(ReadFile(StrCat(KVG_TEST_DATA, "/reports/data/store_v", version, ".sql")));
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(db);
  sqlite3_close(db);
}

std::string Query(const std::string& path, const char* sql) {
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
  std::string text;
  const auto append = [](void* out, int count, char** values, char**) {
    for (int i = 0; i < count; ++i) {
      *static_cast<std::string*>(out) += StrCat(values[i] ? values[i] : "NULL", "|");
    }
    return 0;
  };
  EXPECT_EQ(sqlite3_exec(db, sql, append, &text, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
  return text;
}

void ExpectContent(ResultStore& store, int version) {
  const std::vector<StoredCell> cells = Must(store.Cells());
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].cell.method.name, "snapkv");
  EXPECT_FALSE(cells[0].cell.method.experimental);
  const SampleRow s = *Must(store.Read(cells[0].id, "s0"));
  EXPECT_EQ(s.score, 0.5);
  EXPECT_EQ(s.answers[0].prediction, "It is 7.");
  EXPECT_THAT(s.answers[0].references, ElementsAre("7"));
  ASSERT_EQ(s.layers.size(), 2u);
  EXPECT_EQ(s.layers[0].reads, 180.5);
  EXPECT_EQ(s.layers[1].entries_after, 199);
  EXPECT_FALSE(s.layers[1].bits);
  EXPECT_EQ(s.layers[0].attention_error, version == 1 ? std::nullopt : std::optional(0.125));
  EXPECT_EQ(s.kl_divergence, version == 1 ? std::nullopt : std::optional(0.25));
  EXPECT_EQ(s.facts, "{}");
  EXPECT_FALSE(s.answer_depth);
  EXPECT_TRUE(s.parts.empty());
  EXPECT_EQ(s.answers[0].question, "");
  EXPECT_TRUE(s.layers[0].kept_by_depth.empty());
  EXPECT_EQ(s.memory[0].logical_bytes(), 1600);
  EXPECT_EQ(s.memory[0].peak_bytes, 9000);
  EXPECT_EQ(s.memory[0].host_bytes, 0);
  EXPECT_FALSE(s.fetched_per_step);
  EXPECT_EQ(Must(store.Read(cells[0].id, "s1"))->reason, "out of memory");
  EXPECT_EQ(Must(store.Latency(cells[0].id))[0].tpot_p99_s, 0.03);
  EXPECT_EQ(Must(store.Events(1))[0].message, "one cell");
  EXPECT_EQ(Must(store.Runs())[0].run.machine.facts, R"({"cores":2})");
  const std::vector<LeaderboardRow> board = Must(store.Leaderboard());
  ASSERT_EQ(board.size(), 1u);
  EXPECT_EQ(board[0].byte_ratio, 0.2);
  EXPECT_EQ(board[0].failed, 1);
  EXPECT_EQ(std::ssize(Must(store.Capacities())), version >= 10 ? 1 : 0);
  EXPECT_TRUE(Must(store.Speculations()).empty());
  MustOk(store.Check());
}

class StoreMigrateFrom : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Released, StoreMigrateFrom, ::testing::Values(1, 2, 3, 10, 11));

TEST_P(StoreMigrateFrom, IsUpgradedWhenWritten) {
  const ScratchDirectory scratch;
  const std::string path = scratch.File("r.db"), fresh = scratch.File("fresh.db");
  MakeVersion(GetParam(), path);
  {
    const auto store = MustOpen(path, StoreMode::kReadWrite);
    ExpectContent(*store, GetParam());
    SampleRow sample = TestSample(1, 1, 1, 5);
    EXPECT_EQ(Must(store->Write(sample)), WriteOutcome::kNew);
    EXPECT_TRUE(Must(store->Read(1, "needle-5"))->SameResult(sample));
    MustOk(store->WriteSpeculation(1, TestSpeculation(1, 2, 0, 0)));
    EXPECT_EQ(Must(store->Speculations()).at(0).gamma, 2);
  }
  MustOpen(fresh).reset();
  constexpr char kSchema[] = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name";
  EXPECT_EQ(Query(path, kSchema), Query(fresh, kSchema));
  EXPECT_EQ(Query(path, "PRAGMA user_version"), Query(fresh, "PRAGMA user_version"));
  ASSERT_TRUE(MustOpen(path, StoreMode::kReadWrite) != nullptr) << "a second opening";
}

TEST_P(StoreMigrateFrom, IsReadWithoutTouchingIt) {
  const ScratchDirectory scratch;
  const std::string path = scratch.File("r.db");
  MakeVersion(GetParam(), path);
  const std::string before = Must(ReadFile(path));
  {
    const auto store = MustOpen(path, StoreMode::kReadOnly);
    ExpectContent(*store, GetParam());
    EXPECT_FALSE(store->AddRun(TestRun("x")).ok());
    const auto target = MustOpen(scratch.File("t.db"));
    EXPECT_EQ(Must(target->Merge(*store)).added, 2);
    EXPECT_EQ(Must(target->ResultDigest()), Must(store->ResultDigest()));
  }
  EXPECT_EQ(Must(ReadFile(path)), before);
  EXPECT_EQ(Query(path, "PRAGMA user_version"), StrCat(GetParam(), "|"));
}

// The direction of a task's metric became a column; other texts of the task file do not decide it.
TEST(StoreMigrate, PerplexitiesGetTheirDirection) {
  const ScratchDirectory scratch;
  for (const auto& [spec, want] : {std::pair{R"({"description":"d","metric":"perplexity"})", "1|"},
                                   {R"({"metric":"qa_f1","note":{"metric":"perplexity"}})", "0|"},
                                   {"no JSON", "0|"}}) {
    const std::string path = scratch.File("r.db");
    std::filesystem::remove(path);
    MakeVersion(2, path);
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
    const std::string change = StrCat("UPDATE task SET spec = '", spec, "'");
    ASSERT_EQ(sqlite3_exec(db, change.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(db);
    {
      const auto store = MustOpen(path, StoreMode::kReadWrite);
      const std::vector<StoredCell> cells = Must(store->Cells());
      ASSERT_FALSE(cells.empty());
      EXPECT_EQ(cells[0].cell.task.lower_is_better, want[0] == '1') << spec;
    }
    EXPECT_EQ(Query(path, "SELECT DISTINCT lower_is_better FROM task"), want) << spec;
  }
}

// An upgrade that cannot be finished leaves the old file.
TEST(StoreMigrate, AFailedUpgradeChangesNothing) {
  const ScratchDirectory scratch;
  const std::string path = scratch.File("r.db");
  MakeVersion(1, path);
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  // The upgrade adds this column to layer_stat, after those of sample.
  ASSERT_EQ(sqlite3_exec(db, "ALTER TABLE layer_stat ADD COLUMN attention_error REAL", nullptr,
                         nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(db);
  const auto store = ResultStore::Open(path, StoreMode::kReadWrite);
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.error().message, HasSubstr(path));
  EXPECT_EQ(Query(path, "PRAGMA user_version"), "1|");
  EXPECT_EQ(Query(path, "SELECT count(*) FROM pragma_table_info('sample')"), "17|");
  EXPECT_EQ(Query(path, "SELECT count(*) FROM sample"), "2|");
}

}  // namespace
}  // namespace kvgauge
