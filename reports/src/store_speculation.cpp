// SPDX-License-Identifier: Apache-2.0
// What methods draft for the full cache: one row for each case, prompt and repetition.
#include <cmath>

#include "core/json.h"
#include "core/strings.h"
#include "src/store_impl.h"

namespace kvgauge {
namespace {

// Columns of the table that are numbers; both statements name them.
struct SpeculationCount {
  const char* column;
  int64_t SpeculationRow::*field;
};
constexpr SpeculationCount kSpeculationCounts[] = {
    {"gamma", &SpeculationRow::gamma},
    {"prompt", &SpeculationRow::prompt},
    {"repetition", &SpeculationRow::repetition},
    {"prompt_tokens", &SpeculationRow::prompt_tokens},
    {"answer_tokens", &SpeculationRow::answer_tokens},
    {"checks", &SpeculationRow::checks},
    {"draft_steps", &SpeculationRow::draft_steps},
    {"drafted", &SpeculationRow::drafted},
    {"accepted", &SpeculationRow::accepted},
    {"draft_bytes", &SpeculationRow::draft_bytes},
    {"judge_bytes", &SpeculationRow::judge_bytes},
    {"held_bytes", &SpeculationRow::held_bytes},
};
struct SpeculationReal {
  const char* column;
  double SpeculationRow::*field;
};
constexpr SpeculationReal kSpeculationReals[] = {
    {"draft_s", &SpeculationRow::draft_s},           {"check_s", &SpeculationRow::check_s},
    {"other_s", &SpeculationRow::other_s},           {"full_s", &SpeculationRow::full_s},
    {"others_share", &SpeculationRow::others_share},
};

std::string SpeculationColumns(const std::string& before) {
  std::string text;
  for (const SpeculationCount& c : kSpeculationCounts) text += StrCat(", ", before, c.column);
  for (const SpeculationReal& c : kSpeculationReals) text += StrCat(", ", before, c.column);
  return text;
}

std::vector<int64_t> Whole(const std::vector<double>& numbers) {
  std::vector<int64_t> whole;
  for (const double number : numbers) whole.push_back(std::llround(number));
  return whole;
}

}  // namespace

Result<bool> ResultStore::Impl::PutSpeculation(int64_t run, const SpeculationRow& row) {
  for (const SpeculationReal& real : kSpeculationReals) {
    if (std::isfinite(row.*real.field)) continue;
    return BadInput(StrCat(path, ": speculation of ", row.method.name, " ", row.budget, ": ",
                           real.column, " is not a finite number"));
  }
  KVG_ASSIGN(const int64_t model, PutModel(row.model));
  KVG_ASSIGN(const int64_t method, PutMethod(row.method));
  constexpr int kNamed = 15;
  static const std::string kInsert = [] {
    std::string text = StrCat(
        "INSERT INTO speculation (key, identity, run_id, model_id, method_id, budget, budget_kind,"
        " budget_value, form, workload, drafted_at, accepted_at, not_engaged, not_engaged_because,"
        " answer_key",
        SpeculationColumns(""), ") VALUES (?");
    const auto columns = kNamed + std::ssize(kSpeculationCounts) + std::ssize(kSpeculationReals);
    for (int64_t i = 1; i < columns; ++i) text += ", ?";
    return text + ") ON CONFLICT DO NOTHING";
  }();
  // Texts must live until the statement has run.
  const std::string key = row.Key(), because = RepairUtf8(row.not_engaged_because),
                    drafted_at = Json(row.drafted_at).dump(),
                    accepted_at = Json(row.accepted_at).dump();
  KVG_ASSIGN(auto put, Cached(kInsert.c_str()));
  put->Bind(key, row.identity, run, model, method, row.budget, row.budget_kind, row.budget_value,
            row.form, row.workload, drafted_at, accepted_at, row.not_engaged, because,
            row.answer_key);
  int index = kNamed;
  for (const SpeculationCount& count : kSpeculationCounts) put->BindAt(++index, row.*count.field);
  for (const SpeculationReal& real : kSpeculationReals) put->BindAt(++index, row.*real.field);
  KVG_TRY(put->Run());
  return sqlite3_changes(db.get()) > 0;
}

Status ResultStore::WriteSpeculation(int64_t run, const SpeculationRow& row) {
  KVG_TRY(impl_->Writable());
  KVG_ASSIGN(Transaction transaction, Transaction::Begin(impl_->db));
  KVG_ASSIGN([[maybe_unused]] const bool added, impl_->PutSpeculation(run, row));
  return transaction.Commit();
}

Result<std::vector<SpeculationRow>> ResultStore::Speculations() {
  static const std::string kSelect = StrCat(
      "SELECT s.identity, model.fingerprint, model.name, model.facts, m.name, m.variant, m.title,"
      " m.family, m.version, m.spec, m.full_cache, m.experimental, s.budget, s.budget_kind,"
      " s.budget_value, s.form, s.workload, run.key, machine.facts, s.drafted_at, s.accepted_at,"
      " s.not_engaged, s.not_engaged_because, s.answer_key",
      SpeculationColumns("s."),
      " FROM speculation s JOIN model ON model.id = s.model_id JOIN method m ON m.id = s.method_id"
      " JOIN run ON run.id = s.run_id JOIN machine ON machine.id = run.machine_id ORDER BY s.id");
  KVG_ASSIGN(auto s, impl_->Cached(kSelect.c_str()));
  std::vector<SpeculationRow> rows;
  while (true) {
    KVG_ASSIGN(const bool more, s->Step());
    if (!more) return rows;
    SpeculationRow row;
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
    row.form = s->Text(column++);
    row.workload = s->Text(column++);
    row.run_key = s->Text(column++);
    row.machine_facts = s->Text(column++);
    KVG_ASSIGN(const std::vector<double> drafted_at, ParseNumbers(path(), s->Text(column++)));
    KVG_ASSIGN(const std::vector<double> accepted_at, ParseNumbers(path(), s->Text(column++)));
    row.drafted_at = Whole(drafted_at);
    row.accepted_at = Whole(accepted_at);
    row.not_engaged = s->Int(column++) != 0;
    row.not_engaged_because = s->Text(column++);
    row.answer_key = s->Text(column++);
    for (const SpeculationCount& count : kSpeculationCounts) row.*count.field = s->Int(column++);
    for (const SpeculationReal& real : kSpeculationReals) row.*real.field = s->Real(column++);
    rows.push_back(std::move(row));
  }
}

}  // namespace kvgauge
