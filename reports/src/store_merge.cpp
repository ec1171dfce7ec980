// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "core/strings.h"
#include "reports/leaderboard.h"
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

// A row as people name it, and the signatures that a store holds samples of it under.
using RowSignatures = std::map<std::string, std::map<std::string, std::string>>;  // key -> text

Result<RowSignatures> SignaturesOf(ResultStore& store) {
  KVG_ASSIGN(const std::vector<StoredCell> cells, store.Cells());
  KVG_ASSIGN(const auto counts, store.SampleCounts());
  RowSignatures rows;
  for (const StoredCell& stored : cells) {
    if (!counts.contains(stored.id)) continue;  // planned, and nothing came of it yet
    const CellRow& c = stored.cell;
    std::vector<std::string> parts = {c.model.name, c.task.name, c.method.name};
    if (!c.method.variant.empty()) parts.push_back(c.method.variant);
    parts.push_back(c.budget);
    parts.push_back(c.compress_at);
    rows[Join(parts, ", ")].emplace(stored.signature_key, c.signature);
  }
  return rows;
}

// Halves of a row that were run under different protocols are no row. A store that holds both sides
// by itself was made so on purpose: it shares a signature with whatever it is joined with.
Status CheckSignatures(ResultStore& target, ResultStore& source) {
  KVG_ASSIGN(const RowSignatures held, SignaturesOf(target));
  KVG_ASSIGN(const RowSignatures added, SignaturesOf(source));
  for (const auto& [row, signatures] : added) {
    const auto at = held.find(row);
    if (at == held.end()) continue;
    const auto& others = at->second;
    const bool shared = std::ranges::any_of(
        signatures, [&](const auto& signature) { return others.contains(signature.first); });
    if (shared) continue;
    return BadInput(StrCat(
        source.path(), ": ", row, " was run under another signature than in ", target.path(),
        ": they differ in ",
        DifferingSignatureKeys(others.begin()->second, signatures.begin()->second),
        ", expected one protocol; `kvgauge leaderboard` takes both files and keeps them apart"));
  }
  return {};
}

}  // namespace

Result<MergeReport> ResultStore::TakeOver(ResultStore& source) {
  if (&source == this) return BadInput(StrCat(path(), ": cannot be merged into itself"));
  ReadView view(source.impl_->db);
  KVG_TRY(view.Begin());
  KVG_TRY(CheckSignatures(*this, source));
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
  KVG_ASSIGN(const std::vector<CapacityRow> capacities, source.Capacities());
  for (const CapacityRow& row : capacities) {
    KVG_ASSIGN(const bool added, impl_->PutCapacity(run_of_key[row.run_key], row));
    report.capacity += added ? 1 : 0;
  }
  KVG_ASSIGN(const std::vector<SpeculationRow> speculations, source.Speculations());
  for (const SpeculationRow& row : speculations) {
    KVG_ASSIGN(const bool added, impl_->PutSpeculation(run_of_key[row.run_key], row));
    report.speculation += added ? 1 : 0;
  }
  return report;
}

Result<std::vector<MergeReport>> ResultStore::MergeAll(std::span<ResultStore* const> sources) {
  KVG_TRY(impl_->Writable());
  KVG_ASSIGN(Transaction transaction, Transaction::Begin(impl_->db));
  std::vector<MergeReport> reports;
  for (ResultStore* source : sources) {
    KVG_ASSIGN(const MergeReport report, TakeOver(*source));
    reports.push_back(report);
  }
  KVG_TRY(transaction.Commit());
  return reports;
}

Result<MergeReport> ResultStore::Merge(ResultStore& source) {
  ResultStore* const sources[] = {&source};
  KVG_ASSIGN(const std::vector<MergeReport> reports, MergeAll(sources));
  return reports.front();
}

}  // namespace kvgauge
