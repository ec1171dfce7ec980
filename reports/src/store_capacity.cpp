// SPDX-License-Identifier: Apache-2.0
// What methods hold and serve in a memory: one row for each case and repetition.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "src/store_impl.h"

namespace kvgauge {
namespace {

// Columns of the table that are numbers, in its order; both statements name them.
struct CapacityCount {
  const char* column;
  int64_t CapacityRow::*field;
};
constexpr CapacityCount kCapacityCounts[] = {
    {"max_batch", &CapacityRow::max_batch},
    {"requests", &CapacityRow::requests},
    {"served", &CapacityRow::served},
    {"failed", &CapacityRow::failed},
    {"held", &CapacityRow::held},
    {"decoding", &CapacityRow::decoding},
    {"tokens_in", &CapacityRow::tokens_in},
    {"tokens_out", &CapacityRow::tokens_out},
    {"passes", &CapacityRow::passes},
    {"prompt_rows", &CapacityRow::prompt_rows},
    {"preemptions", &CapacityRow::preemptions},
    {"shared_tokens", &CapacityRow::shared_tokens},
    {"replayed_tokens", &CapacityRow::replayed_tokens},
    {"weight_bytes", &CapacityRow::weight_bytes},
    {"working_bytes", &CapacityRow::working_bytes},
    {"planned_bytes", &CapacityRow::planned_bytes},
    {"peak_bytes", &CapacityRow::peak_bytes},
    {"sequence_bytes", &CapacityRow::sequence_bytes},
    {"host_bytes", &CapacityRow::host_bytes},
    {"not_engaged", &CapacityRow::not_engaged},
};
struct CapacityReal {
  const char* column;
  double CapacityRow::*field;
};
constexpr CapacityReal kCapacityReals[] = {
    {"seconds", &CapacityRow::seconds},           {"busy_s", &CapacityRow::busy_s},
    {"tokens_per_s", &CapacityRow::tokens_per_s}, {"ttft_p50_s", &CapacityRow::ttft_p50_s},
    {"ttft_p90_s", &CapacityRow::ttft_p90_s},     {"ttft_p99_s", &CapacityRow::ttft_p99_s},
    {"tpot_p50_s", &CapacityRow::tpot_p50_s},     {"tpot_p90_s", &CapacityRow::tpot_p90_s},
    {"tpot_p99_s", &CapacityRow::tpot_p99_s},     {"e2e_p50_s", &CapacityRow::e2e_p50_s},
    {"e2e_p90_s", &CapacityRow::e2e_p90_s},       {"e2e_p99_s", &CapacityRow::e2e_p99_s},
    {"others_share", &CapacityRow::others_share},
};

std::string NumberColumns(const std::string& before) {
  std::string text;
  for (const CapacityCount& c : kCapacityCounts) text += StrCat(", ", before, c.column);
  for (const CapacityReal& c : kCapacityReals) text += StrCat(", ", before, c.column);
  return text;
}

std::optional<int64_t> Limit(int64_t bytes) {
  return bytes > 0 ? std::optional(bytes) : std::nullopt;
}

}  // namespace

Result<bool> ResultStore::Impl::PutCapacity(int64_t run, const CapacityRow& row) {
  for (const CapacityReal& real : kCapacityReals) {
    if (std::isfinite(row.*real.field)) continue;
    return BadInput(StrCat(path, ": capacity of ", row.method.name, " ", row.budget, ": ",
                           real.column, " is not a finite number"));
  }
  KVG_ASSIGN(const int64_t model, PutModel(row.model));
  KVG_ASSIGN(const int64_t method, PutMethod(row.method));
  constexpr int kNamed = 19;
  static const std::string kInsert = [] {
    std::string text = StrCat(
        "INSERT INTO capacity (key, identity, run_id, model_id, method_id, budget, budget_kind,"
        " budget_value, workload, policy, batch, memory_bytes, host_memory_bytes, repetition,"
        " refused, failure, fit, not_engaged_because, answers_key",
        NumberColumns(""), ") VALUES (?");
    const auto columns = kNamed + std::ssize(kCapacityCounts) + std::ssize(kCapacityReals);
    for (int64_t i = 1; i < columns; ++i) text += ", ?";
    return text + ") ON CONFLICT DO NOTHING";
  }();
  // Texts must live until the statement has run.
  const std::string key = row.Key(), refused = RepairUtf8(row.refused),
                    failure = RepairUtf8(row.failure),
                    because = RepairUtf8(row.not_engaged_because);
  KVG_ASSIGN(auto put, Cached(kInsert.c_str()));
  put->Bind(key, row.identity, run, model, method, row.budget, row.budget_kind, row.budget_value,
            row.workload, row.policy, row.batch, Limit(row.memory_bytes),
            Limit(row.host_memory_bytes), row.repetition, refused, failure, row.fit, because,
            row.answers_key);
  int index = kNamed;
  for (const CapacityCount& count : kCapacityCounts) put->BindAt(++index, row.*count.field);
  for (const CapacityReal& real : kCapacityReals) put->BindAt(++index, row.*real.field);
  KVG_TRY(put->Run());
  return sqlite3_changes(db.get()) > 0;
}

Status ResultStore::WriteCapacity(int64_t run, const CapacityRow& row) {
  KVG_TRY(impl_->Writable());
  KVG_ASSIGN(Transaction transaction, Transaction::Begin(impl_->db));
  KVG_ASSIGN([[maybe_unused]] const bool added, impl_->PutCapacity(run, row));
  return transaction.Commit();
}

Result<std::vector<CapacityRow>> ResultStore::Capacities() {
  static const std::string kSelect = StrCat(
      "SELECT c.identity, model.fingerprint, model.name, model.facts, m.name, m.variant, m.title,"
      " m.family, m.version, m.spec, m.full_cache, m.experimental, c.budget, c.budget_kind,"
      " c.budget_value, c.workload, c.policy, c.batch, c.memory_bytes, c.host_memory_bytes,"
      " c.repetition, run.key, machine.facts, c.refused, c.failure, c.fit, c.not_engaged_because,"
      " c.answers_key",
      NumberColumns("c."),
      " FROM capacity c JOIN model ON model.id = c.model_id JOIN method m ON m.id = c.method_id"
      " JOIN run ON run.id = c.run_id JOIN machine ON machine.id = run.machine_id ORDER BY c.id");
  KVG_ASSIGN(auto s, impl_->Cached(kSelect.c_str()));
  std::vector<CapacityRow> rows;
  while (true) {
    KVG_ASSIGN(const bool more, s->Step());
    if (!more) return rows;
    CapacityRow row;
    int column = 0;
    row.identity = s->Text(column++);
    row.model.fingerprint = s->Text(column++);
    row.model.name = s->Text(column++);
    row.model.facts = s->Text(column++);
    row.method.name = s->Text(column++);
    row.method.variant = s->Text(column++);
    row.method.title = s->Text(column++);
    row.method.family = s->Text(column++);
    row.method.version = s->Int(column++);
    row.method.spec = s->Text(column++);
    row.method.full_cache = s->Int(column++) != 0;
    row.method.experimental = s->Int(column++) != 0;
    row.budget = s->Text(column++);
    row.budget_kind = s->Text(column++);
    row.budget_value = s->Real(column++);
    row.workload = s->Text(column++);
    row.policy = s->Text(column++);
    row.batch = s->Int(column++);
    row.memory_bytes = s->MaybeInt(column++).value_or(0);
    row.host_memory_bytes = s->MaybeInt(column++).value_or(0);
    row.repetition = s->Int(column++);
    row.run_key = s->Text(column++);
    row.machine_facts = s->Text(column++);
    row.refused = s->Text(column++);
    row.failure = s->Text(column++);
    row.fit = s->MaybeInt(column++);
    row.not_engaged_because = s->Text(column++);
    row.answers_key = s->Text(column++);
    for (const CapacityCount& count : kCapacityCounts) row.*count.field = s->Int(column++);
    for (const CapacityReal& real : kCapacityReals) row.*real.field = s->Real(column++);
    rows.push_back(std::move(row));
  }
}

}  // namespace kvgauge
