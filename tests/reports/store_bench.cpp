// SPDX-License-Identifier: Apache-2.0
// Run by hand: what recording a sample costs, and how long a million samples take to open and rank.
// The first cells are recorded as a run does it; the others are copies of them, made by SQL.
//   store_bench [SAMPLES [FILE]]          FILE: where the database is left; default: nowhere
#include <sqlite3.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/strings.h"
#include "reports/leaderboard.h"
#include "reports/store_fixture.h"

namespace kvgauge {
namespace {

constexpr int64_t kWritten = 5;  // cells
constexpr int64_t kSamples = 4000;

std::vector<std::string> ColumnsOf(sqlite3* db, const char* table) {
  sqlite3_stmt* statement = nullptr;
  KVG_CHECK(sqlite3_prepare_v2(db, "SELECT name FROM pragma_table_info(?1)", -1, &statement,
                               nullptr) == SQLITE_OK,
            sqlite3_errmsg(db));
  sqlite3_bind_text(statement, 1, table, -1, SQLITE_STATIC);
  std::vector<std::string> columns;
  while (sqlite3_step(statement) == SQLITE_ROW) {
    columns.emplace_back(reinterpret_cast<const char*>(sqlite3_column_text(statement, 0)));
  }
  sqlite3_finalize(statement);
  KVG_CHECK(!columns.empty(), table);
  return columns;
}

// Statements that copy the rows of cell ?2 to cell ?1, whatever columns the tables have.
std::vector<std::string> CopiesOfACell(sqlite3* db) {
  const std::string moved = StrCat(" + (?1 - ?2) * ", kSamples);
  std::vector<std::string> statements;
  for (const char* table : {"sample", "answer", "memory", "layer_stat"}) {
    const std::string key = std::string_view(table) == "sample" ? "id" : "sample_id";
    std::vector<std::string> columns = ColumnsOf(db, table);
    for (std::string& column : columns) {
      if (column == key) column += moved;
      if (column == "cell_id") column = "?1";
    }
    statements.push_back(StrCat("INSERT INTO ", table, " SELECT ", Join(columns, ", "), " FROM ",
                                table, " WHERE ", key, " > (?2 - 1) * ", kSamples, " AND ", key,
                                " <= ?2 * ", kSamples));
  }
  return statements;
}

void Copy(sqlite3* db, std::span<const std::string> statements, int64_t to, int64_t from) {
  for (const std::string& sql : statements) {
    sqlite3_stmt* statement = nullptr;
    KVG_CHECK(sqlite3_prepare_v2(db, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK,
              sqlite3_errmsg(db));
    sqlite3_bind_int64(statement, 1, to);
    sqlite3_bind_int64(statement, 2, from);
    KVG_CHECK(sqlite3_step(statement) == SQLITE_DONE, sqlite3_errmsg(db));
    sqlite3_finalize(statement);
  }
}

void Run(int64_t samples, const std::string& keep) {
  const ScratchDirectory scratch;
  const std::string path = keep.empty() ? scratch.File("r.db") : keep;
  const int64_t cells = samples / kSamples;
  {
    const auto store = MustOpen(path);
    const int64_t run = Must(store->AddRun(TestRun("r")));
    for (int64_t c = 0; c < cells; ++c) Must(store->AddCell(TestCell(c)));
    const double start_s = NowSeconds(), start_cpu_s = ReadCpuUse().process_s;
    for (int64_t c = 0; c < kWritten; ++c) {
      for (int64_t i = 0; i < kSamples; ++i) Must(store->Write(TestSample(c + 1, run, c, i)));
    }
    const double count = static_cast<double>(kWritten * kSamples);
    std::printf("a sample is recorded in %.0f us, %.0f us of them computing\n",
                (NowSeconds() - start_s) / count * 1e6,
                (ReadCpuUse().process_s - start_cpu_s) / count * 1e6);
  }
  sqlite3* db = nullptr;
  KVG_CHECK(sqlite3_open(path.c_str(), &db) == SQLITE_OK, "the file just written");
  sqlite3_exec(db, "PRAGMA synchronous = OFF; BEGIN", nullptr, nullptr, nullptr);
  const std::vector<std::string> statements = CopiesOfACell(db);
  for (int64_t cell = kWritten + 1; cell <= cells; ++cell) {
    Copy(db, statements, cell, (cell - 1) % kWritten + 1);
  }
  KVG_CHECK(sqlite3_exec(db, "COMMIT", nullptr, nullptr, nullptr) == SQLITE_OK, "committed");
  sqlite3_close(db);

  std::vector<double> rank_s, model_s, write_s;
  for (int repetition = 0; repetition < 5; ++repetition) {
    double start_s = NowSeconds();
    auto store = MustOpen(path, StoreMode::kReadOnly);
    const std::vector<LeaderboardRow> rows = Must(store->Leaderboard());
    rank_s.push_back(NowSeconds() - start_s);
    int64_t found = 0;
    for (const LeaderboardRow& row : rows) found += row.samples;
    KVG_CHECK(found == cells * kSamples, "every sample is ranked");
    start_s = NowSeconds();
    store = MustOpen(path, StoreMode::kReadOnly);
    ResultStore* const stores[] = {store.get()};
    const LeaderboardModel model = Must(MakeLeaderboard(stores, {.latency = false}));
    KVG_CHECK(model.samples == cells * kSamples, "every sample is in the model");
    model_s.push_back(NowSeconds() - start_s);
    start_s = NowSeconds();
    store = MustOpen(path, StoreMode::kReadWrite);
    write_s.push_back(NowSeconds() - start_s);
  }
  std::ranges::sort(rank_s);
  std::ranges::sort(model_s);
  std::ranges::sort(write_s);
  std::printf(
      "%lld samples, %s: opened and ranked in %.2f s (worst %.2f), with intervals and verdicts in"
      " %.2f s (worst %.2f), opened for writing in %.2f s\n",
      static_cast<long long>(cells * kSamples),
      HumanBytes(static_cast<int64_t>(std::filesystem::file_size(path))).c_str(), rank_s[2],
      rank_s[4], model_s[2], model_s[4], write_s[2]);
}

}  // namespace
}  // namespace kvgauge

int main(int argc, char** argv) {
  kvgauge::Run(argc > 1 ? std::atoll(argv[1]) : 1000000, argc > 2 ? argv[2] : "");
}
