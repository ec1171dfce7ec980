// SPDX-License-Identifier: Apache-2.0
// Run by hand: what recording a sample costs, and how long a million samples take to open and rank.
// The first cells are recorded as a run does it; the others are copies of them, made by SQL.
//   store_bench [SAMPLES [FILE]]          FILE: where the database is left; default: nowhere
#include <sqlite3.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "core/check.h"
#include "core/clock.h"
#include "reports/leaderboard.h"
#include "reports/store_fixture.h"

namespace kvgauge {
namespace {

constexpr int64_t kWritten = 5;  // cells
constexpr int64_t kSamples = 4000;

constexpr char kCopyCell[] =
    "INSERT INTO sample SELECT id + (?1 - ?2) * 4000, ?1, run_id, sample_key, hash, group_key,"
    " position, status, reason, score, tokens_in, tokens_out, engagement, engagement_reason,"
    " compressions, logical_bytes, full_bytes, kl_divergence, top1_agreement, facts, answer_depth,"
    " reads_per_step, read_share, parts FROM sample WHERE cell_id = ?2;"
    "INSERT INTO answer SELECT sample_id + (?1 - ?2) * 4000, turn, prediction, answers, score,"
    " tokens_out, stopped, question_id FROM answer WHERE sample_id > (?2 - 1) * 4000 AND"
    " sample_id <= ?2 * 4000;"
    "INSERT INTO memory SELECT sample_id + (?1 - ?2) * 4000, moment, nominal_bytes, full_bytes,"
    " payload_bytes, scales_bytes, indices_bytes, outliers_bytes, low_rank_bytes, biases_bytes,"
    " codebooks_bytes, projections_bytes, reader_bytes, slack_bytes, resident_bytes, peak_bytes"
    " FROM memory WHERE sample_id > (?2 - 1) * 4000 AND sample_id <= ?2 * 4000;"
    "INSERT INTO layer_stat SELECT sample_id + (?1 - ?2) * 4000, layer, head, entries_before,"
    " entries_after, bits, merged, reads, attention_error, kept_by_depth, answer_kept"
    " FROM layer_stat WHERE sample_id > (?2 - 1) * 4000 AND sample_id <= ?2 * 4000;";

void Copy(sqlite3* db, int64_t to, int64_t from) {
  for (const char* sql = kCopyCell; *sql != '\0';) {
    sqlite3_stmt* statement = nullptr;
    KVG_CHECK(sqlite3_prepare_v2(db, sql, -1, &statement, &sql) == SQLITE_OK, sqlite3_errmsg(db));
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
  for (int64_t cell = kWritten + 1; cell <= cells; ++cell) {
    Copy(db, cell, (cell - 1) % kWritten + 1);
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
