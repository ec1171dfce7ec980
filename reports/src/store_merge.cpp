// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "core/strings.h"
#include "src/store_impl.h"

namespace kvgauge {
namespace {

// One consistent view of the source, however long it takes and whoever writes to it.
class ReadView {
 public:
  explicit ReadView(Database& database) : database_(database) {}
  Status Begin() { return database_.Exec("BEGIN"); }
  ~ReadView() { sqlite3_exec(database_.get(), "END", nullptr, nullptr, nullptr); }

 private:
  Database& database_;
};

}  // namespace

Result<MergeReport> ResultStore::Merge(ResultStore& source) {
  KVG_TRY(impl_->Writable());
  if (&source == this) return BadInput(StrCat(path(), ": cannot be merged into itself"));
  ReadView view(source.impl_->db);
  KVG_TRY(view.Begin());
  KVG_ASSIGN(Transaction transaction, Transaction::Begin(impl_->db));
  MergeReport report;
  const auto from_source = [&](const Error& error) { return error.Wrap(source.path()); };

  std::map<int64_t, int64_t> run_ids;
  std::map<std::string, int64_t> run_of_key;
  KVG_ASSIGN(const std::vector<StoredRun> runs, source.Runs());
  for (const StoredRun& run : runs) {
    const Result<int64_t> id = impl_->PutRun(run.run);
    if (!id.ok()) return from_source(id.error());
    run_ids[run.id] = *id;
    run_of_key[run.run.key] = *id;
    KVG_ASSIGN(const std::vector<EventRow> events, source.Events(run.id));
    int64_t ordinal = 0;
    for (const EventRow& event : events) {
      KVG_ASSIGN(auto put, impl_->Cached("INSERT INTO event (run_id, ordinal, at, kind, message)"
                                         " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"));
      put->Bind(*id, ordinal++, event.at, event.kind, event.message);
      KVG_TRY(put->Run());
    }
  }

  KVG_ASSIGN(const std::vector<StoredCell> cells, source.Cells());
  for (const StoredCell& stored : cells) {
    const Result<int64_t> cell = impl_->PutCell(stored.cell);
    if (!cell.ok()) return from_source(cell.error());
    ++report.cells;
    KVG_ASSIGN(auto list, source.impl_->Cached("SELECT sample_key FROM sample WHERE cell_id = ?"
                                               " ORDER BY id"));
    list->Bind(stored.id);
    while (true) {
      KVG_ASSIGN(const bool more, list->Step());
      if (!more) break;
      KVG_ASSIGN(std::optional<SampleRow> sample,
                 source.impl_->ReadSample(stored.id, list->Text(0)));
      sample->cell = *cell;
      sample->run = run_ids[sample->run];
      const Result<WriteOutcome> outcome = impl_->PutSample(*sample);
      if (!outcome.ok()) return from_source(outcome.error());
      report.added += *outcome == WriteOutcome::kNew ? 1 : 0;
      report.kept += *outcome == WriteOutcome::kKept ? 1 : 0;
      report.replaced += *outcome == WriteOutcome::kReplaced ? 1 : 0;
    }
    KVG_ASSIGN(const std::vector<LatencyRow> latency, source.Latency(stored.id));
    for (const LatencyRow& row : latency) {
      KVG_TRY(impl_->PutLatency(*cell, run_of_key[row.run_key], std::nullopt, row));
    }
  }
  KVG_TRY(transaction.Commit());
  return report;
}

}  // namespace kvgauge
