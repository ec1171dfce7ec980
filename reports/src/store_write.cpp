// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/check.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/store_impl.h"

namespace kvgauge {
namespace {

// The id that `select` finds for `key`, or nothing.
template <class Impl, class... Keys>
Result<std::optional<int64_t>> Find(Impl& impl, const char* select, const Keys&... keys) {
  KVG_ASSIGN(auto statement, impl.Cached(select));
  statement->Bind(keys...);
  KVG_ASSIGN(const bool row, statement->Step());
  return row ? std::optional<int64_t>(statement->Int(0)) : std::nullopt;
}

// Runs a statement to its end; gives the id of the row it inserted, if it did.
template <class Impl, class... Values>
Result<int64_t> Execute(Impl& impl, const char* sql, const Values&... values) {
  KVG_ASSIGN(auto statement, impl.Cached(sql));
  statement->Bind(values...);
  KVG_TRY(statement->Run());
  return sqlite3_last_insert_rowid(impl.db.get());
}

bool LayersInOrder(const LayerStatRow& a, const LayerStatRow& b) {
  return std::pair(a.layer, a.head) < std::pair(b.layer, b.head);
}

bool ModalitiesInOrder(const ModalityStatRow& a, const ModalityStatRow& b) {
  return a.layer != b.layer ? a.layer < b.layer : a.modality < b.modality;
}

bool IsNormal(const SampleRow& row) {
  const auto clean = [](const std::string& text) {
    return FindInvalidUtf8(text) == std::string_view::npos;
  };
  return clean(row.reason) && clean(row.engagement_reason) &&
         std::ranges::all_of(row.answers,
                             [&](const AnswerRow& answer) {
                               return clean(answer.question) && clean(answer.excerpt) &&
                                      clean(answer.prediction) &&
                                      std::ranges::all_of(answer.references, clean);
                             }) &&
         std::ranges::is_sorted(row.layers, LayersInOrder) &&
         std::ranges::is_sorted(row.modalities, ModalitiesInOrder) &&
         std::ranges::is_sorted(row.memory, {}, &MemoryRow::moment);
}

// What is stored and compared: well-formed texts, children in the order they are read back.
SampleRow Normalised(const SampleRow& sample) {
  SampleRow row = sample;
  row.reason = RepairUtf8(row.reason);
  row.engagement_reason = RepairUtf8(row.engagement_reason);
  for (AnswerRow& answer : row.answers) {
    answer.question = RepairUtf8(answer.question);
    answer.excerpt = RepairUtf8(answer.excerpt);
    answer.prediction = RepairUtf8(answer.prediction);
    for (std::string& reference : answer.references) reference = RepairUtf8(reference);
  }
  std::ranges::sort(row.layers, LayersInOrder);
  std::ranges::sort(row.modalities, ModalitiesInOrder);
  std::ranges::sort(row.memory, {}, &MemoryRow::moment);
  return row;
}

bool Finite(const std::optional<double>& value) { return !value || std::isfinite(*value); }
bool Finite(const std::vector<double>& values) {
  return std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
}

Status CheckSample(const std::string& path, const SampleRow& row) {
  const auto refuse = [&](const auto&... what) {
    return BadInput(StrCat(path, ": sample ", Quoted(row.sample_id), ": ", what...));
  };
  if ((row.status == SampleStatus::kOk) != row.reason.empty()) {
    return refuse("status ", NameOf(row.status), " with reason ", Quoted(row.reason),
                  ", expected a reason for what is not ok and none for what is");
  }
  if (row.score && row.status != SampleStatus::kOk) {
    return refuse("status ", NameOf(row.status), " with a score, expected none");
  }
  bool finite = Finite(row.score) && Finite(row.kl_divergence) && Finite(row.top1_agreement) &&
                Finite(row.answer_depth) && Finite(row.reads_per_step) && Finite(row.read_share) &&
                Finite(row.fetched_per_step) && Finite(row.parts);
  for (const AnswerRow& answer : row.answers) finite = finite && Finite(answer.score);
  for (const LayerStatRow& l : row.layers) {
    finite = finite && Finite(l.bits) && Finite(l.reads) && Finite(l.attention_error) &&
             Finite(l.kept_by_depth) && Finite(l.answer_kept);
  }
  for (const ModalityStatRow& m : row.modalities) {
    finite = finite && std::isfinite(m.attention) && std::isfinite(m.attention_kept);
  }
  if (!finite) return refuse("a score or measure is not a finite number");
  const auto patches = std::ssize(row.patches);
  if (patches > 1 && patches != (row.sight ? row.sight->cells() : 0)) {
    return refuse("patches of ", patches, " cells, expected ", row.sight ? row.sight->cells() : 0,
                  ", as many as its pictures have, or one digit for all");
  }
  return {};
}

std::string ReferencesJson(const std::vector<std::string>& references) {
  return CanonicalJson(Json(references));
}

// A share in thousandths, which most numbers here are, as to_chars would write it; at `at`, which
// has room. Null when the number is none.
char* WriteThousandths(double number, char* at) {
  const double thousandths = std::round(1000 * number);
  if (!(thousandths > 0 && thousandths < 1000) || thousandths / 1000 != number) return nullptr;
  auto digits = static_cast<int>(thousandths);
  *at++ = '0';
  *at++ = '.';
  for (int place = 100; digits > 0; place /= 10) {
    *at++ = static_cast<char>('0' + digits / place);
    digits %= place;
  }
  return at;
}

// "[0.5,1.0]", as the JSON library writes it; nothing for no numbers. Written for every layer of
// every sample, so without a tree of values.
std::optional<std::string> NumbersJson(const std::vector<double>& numbers) {
  if (numbers.empty()) return std::nullopt;
  std::string text = "[";
  for (const double number : numbers) {
    char digits[32];
    char* end = WriteThousandths(number, digits);
    if (end == nullptr) end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
    const std::string_view shown(digits, static_cast<size_t>(end - digits));
    if (text.size() > 1) text += ',';
    text += shown;
    if (shown.find_first_of(".e") == std::string_view::npos) text += ".0";
  }
  text += ']';
  return text;
}

// How many rows one statement inserts; the largest that there are rows for is taken.
constexpr size_t kLayersTogether[] = {16, 4, 1};

const char* InsertLayers(size_t rows) {
  static const auto kStatements = [] {
    std::map<size_t, std::string> statements;
    for (const size_t count : kLayersTogether) {
      std::string& text = statements[count];
      text =
          "INSERT INTO layer_stat (sample_id, layer, head, entries_before, entries_after, bits,"
          " merged, reads, attention_error, kept_by_depth, answer_kept) VALUES";
      for (size_t i = 0; i < count; ++i) {
        text += i == 0 ? " " : ", ";
        text += "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
      }
    }
    return statements;
  }();
  return kStatements.at(rows).c_str();
}

// Most rows of a sample are these: a statement takes several.
template <class Impl>
Status PutLayers(Impl& impl, int64_t sample, const std::vector<LayerStatRow>& layers) {
  std::optional<std::string> kept[kLayersTogether[0]];
  for (size_t begin = 0; begin < layers.size();) {
    const size_t left = layers.size() - begin;
    const size_t count =
        *std::ranges::find_if(kLayersTogether, [&](size_t rows) { return rows <= left; });
    KVG_ASSIGN(auto statement, impl.Cached(InsertLayers(count)));
    statement->Reset();
    for (size_t i = 0; i < count; ++i) {
      const LayerStatRow& l = layers[begin + i];
      kept[i] = NumbersJson(l.kept_by_depth);
      statement->BindRow(static_cast<int>(i), sample, l.layer, l.head, l.entries_before,
                         l.entries_after, l.bits, l.merged, l.reads, l.attention_error, kept[i],
                         l.answer_kept);
    }
    KVG_TRY(statement->Run());
    begin += count;
  }
  return {};
}

// A question and its excerpt are held once, however many cells answer it; nothing for neither.
template <class Impl>
Result<std::optional<int64_t>> PutQuestion(Impl& impl, const AnswerRow& answer) {
  if (answer.question.empty() && answer.excerpt.empty()) return std::optional<int64_t>();
  const std::string key =
      Sha256Hex(StrCat(answer.question.size(), ":", answer.question, answer.excerpt));
  KVG_ASSIGN(std::optional<int64_t> id, Find(impl, "SELECT id FROM question WHERE key = ?", key));
  if (!id) {
    KVG_ASSIGN(id, Execute(impl, "INSERT INTO question (key, text, excerpt) VALUES (?, ?, ?)", key,
                           answer.question, answer.excerpt));
  }
  return id;
}

}  // namespace

Result<int64_t> ResultStore::Impl::PutRun(const RunRow& run) {
  KVG_ASSIGN(auto known, Cached("SELECT id, command, config, finished_at FROM run WHERE key = ?"));
  known->Bind(run.key);
  KVG_ASSIGN(const bool exists, known->Step());
  if (exists) {
    const int64_t id = known->Int(0);
    if (known->Text(1) != run.command || known->Text(2) != run.config) {
      return BadInput(StrCat(path, ": run ", Quoted(run.key), " is recorded with command ",
                             Quoted(known->Text(1)), ", expected ", Quoted(run.command),
                             " and the same configuration; keys of runs must be unique"));
    }
    if (known->IsNull(3) && !run.finished_at.empty()) {
      KVG_TRY(Execute(*this, "UPDATE run SET finished_at = ? WHERE id = ?", run.finished_at, id));
    }
    return id;
  }
  const std::string machine_key = Sha256Hex(run.machine.facts);
  KVG_ASSIGN(std::optional<int64_t> machine,
             Find(*this, "SELECT id FROM machine WHERE key = ?", machine_key));
  if (!machine) {
    KVG_ASSIGN(machine, Execute(*this, "INSERT INTO machine (key, facts) VALUES (?, ?)",
                                machine_key, run.machine.facts));
  }
  const std::optional<std::string> finished =
      run.finished_at.empty() ? std::nullopt : std::optional(run.finished_at);
  return Execute(*this,
                 "INSERT INTO run (key, machine_id, command, config, version, revision, started_at,"
                 " finished_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                 run.key, *machine, run.command, run.config, run.version, run.revision,
                 run.started_at, finished);
}

Result<int64_t> ResultStore::Impl::PutModel(const ModelRow& m) {
  KVG_ASSIGN(const std::optional<int64_t> model,
             Find(*this, "SELECT id FROM model WHERE fingerprint = ? AND name = ?", m.fingerprint,
                  m.name));
  if (model) return *model;
  return Execute(*this, "INSERT INTO model (fingerprint, name, facts) VALUES (?, ?, ?)",
                 m.fingerprint, m.name, m.facts);
}

Result<int64_t> ResultStore::Impl::PutMethod(const MethodRow& h) {
  const std::string method_key = Sha256Hex(StrCat(h.name, "\n", h.variant, "\n", h.spec));
  KVG_ASSIGN(const std::optional<int64_t> method,
             Find(*this, "SELECT id FROM method WHERE key = ?", method_key));
  if (!method) {
    return Execute(*this,
                   "INSERT INTO method (key, name, variant, title, family, version, spec,"
                   " full_cache, experimental) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                   method_key, h.name, h.variant, h.title, h.family, h.version, h.spec,
                   h.full_cache, h.experimental);
  }
  if (!h.experimental) {
    // What has come to be held is held for what was measured before, too.
    KVG_TRY(Execute(*this, "UPDATE method SET experimental = 0 WHERE id = ? AND experimental",
                    *method));
  }
  return *method;
}

Result<int64_t> ResultStore::Impl::PutCell(const CellRow& cell) {
  const std::string key = cell.Key();
  const std::string signature_key = Sha256Hex(cell.signature);
  {
    KVG_ASSIGN(auto known, Cached("SELECT cell.id, signature.key, signature.protocol FROM cell"
                                  " JOIN signature ON signature.id = cell.signature_id"
                                  " WHERE cell.key = ?"));
    known->Bind(key);
    KVG_ASSIGN(const bool exists, known->Step());
    if (exists) {
      if (known->Text(1) == signature_key) return known->Int(0);
      return BadInput(StrCat(path, ": cell ", key.substr(0, 12), " (", cell.model.name, ", ",
                             cell.task.name, ", ", cell.method.name, ", ", cell.budget,
                             ") is recorded under signature ", Quoted(known->Text(2), 400),
                             ", expected ", Quoted(cell.signature, 400),
                             "; scores of different signatures cannot be joined"));
    }
  }
  KVG_ASSIGN(std::optional<int64_t> signature,
             Find(*this, "SELECT id FROM signature WHERE key = ?", signature_key));
  if (!signature) {
    KVG_ASSIGN(signature, Execute(*this, "INSERT INTO signature (key, protocol) VALUES (?, ?)",
                                  signature_key, cell.signature));
  }
  KVG_ASSIGN(const int64_t model, PutModel(cell.model));
  KVG_ASSIGN(const int64_t method, PutMethod(cell.method));
  const TaskRow& t = cell.task;
  const std::string task_key = Sha256Hex(StrCat(t.name, "\n", t.spec));
  KVG_ASSIGN(std::optional<int64_t> task,
             Find(*this, "SELECT id FROM task WHERE key = ?", task_key));
  if (!task) {
    KVG_ASSIGN(task, Execute(*this,
                             "INSERT INTO task (key, name, version, spec, lower_is_better)"
                             " VALUES (?, ?, ?, ?, ?)",
                             task_key, t.name, t.version, t.spec, t.lower_is_better));
  }
  return Execute(*this,
                 "INSERT INTO cell (key, identity, signature_id, model_id, method_id, task_id,"
                 " budget, budget_kind, budget_value, compress_at, seed)"
                 " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                 key, cell.identity, *signature, model, method, *task, cell.budget,
                 cell.budget_kind, cell.budget_value, cell.compress_at, cell.seed);
}

Status ResultStore::Impl::PutLatency(int64_t cell, int64_t run, std::optional<int64_t> sample,
                                     const LatencyRow& r) {
  KVG_TRY(
      Execute(*this,
              "INSERT INTO latency (cell_id, run_id, sample_id, isolated,"
              " context_tokens, repetition, prefill_s, score_s, select_s, compact_s, quantise_s,"
              " attend_s, other_s, vision_s, ttft_s, tpot_p50_s, tpot_p90_s, tpot_p99_s, steps,"
              " resident_bytes, peak_bytes, others_share)"
              " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
              " ON CONFLICT DO NOTHING",
              cell, run, sample, !sample, r.context_tokens, r.repetition, r.prefill_s, r.score_s,
              r.select_s, r.compact_s, r.quantise_s, r.attend_s, r.other_s, r.vision_s, r.ttft_s,
              r.tpot_p50_s, r.tpot_p90_s, r.tpot_p99_s, r.steps, r.resident_bytes, r.peak_bytes,
              r.others_share));
  return {};
}

Result<WriteOutcome> ResultStore::Impl::PutSample(const SampleRow& sample) {
  KVG_TRY(CheckSample(path, sample));
  std::optional<SampleRow> mended;
  if (!IsNormal(sample)) mended = Normalised(sample);
  const SampleRow& row = mended ? *mended : sample;
  KVG_ASSIGN(const std::optional<SampleRow> old, ReadSample(row.cell, row.sample_id));
  if (old) {
    if (row.status != SampleStatus::kOk || old->SameResult(row)) return WriteOutcome::kKept;
    if (old->status == SampleStatus::kOk) {
      return BadInput(StrCat(
          path, ": cell ", row.cell, ", sample ", Quoted(row.sample_id),
          ": is recorded with another result (score ", old->score ? StrCat(*old->score) : "none",
          ", now ", row.score ? StrCat(*row.score) : "none",
          "); the same cell must give the same result. Record it in another file"));
    }
    KVG_TRY(Execute(*this, "DELETE FROM sample WHERE cell_id = ? AND sample_key = ?", row.cell,
                    row.sample_id));
  }
  std::optional<int64_t> logical_bytes, full_bytes;
  for (const MemoryRow& m : row.memory) {
    if (m.moment != MemoryMoment::kCompressed) continue;
    logical_bytes = m.logical_bytes();
    full_bytes = m.full_bytes;
  }
  std::optional<int64_t> sight;
  if (row.sight) {
    KVG_ASSIGN(sight, PutSight(*row.sight));
  }
  const std::optional<std::string> patches =
      row.patches.empty() ? std::nullopt : std::optional(row.patches);
  KVG_ASSIGN(const int64_t id,
             Execute(*this,
                     "INSERT INTO sample (cell_id, run_id, sample_key, hash, group_key, position,"
                     " status, reason, score, tokens_in, tokens_out, engagement, engagement_reason,"
                     " compressions, logical_bytes, full_bytes, kl_divergence, top1_agreement,"
                     " facts, answer_depth, reads_per_step, read_share, parts, images, frames,"
                     " visual_tokens, sight_id, patches, fetched_per_step)"
                     " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,"
                     " ?, ?, ?, ?, ?, ?, ?)",
                     row.cell, row.run, row.sample_id, row.hash, row.group, row.position,
                     NameOf(row.status), row.reason, row.score, row.tokens_in, row.tokens_out,
                     NameOf(row.engagement), row.engagement_reason, row.compressions, logical_bytes,
                     full_bytes, row.kl_divergence, row.top1_agreement, row.facts, row.answer_depth,
                     row.reads_per_step, row.read_share, NumbersJson(row.parts), row.images,
                     row.frames, row.visual_tokens, sight, patches, row.fetched_per_step));
  int64_t turn = 0;
  for (const AnswerRow& a : row.answers) {
    KVG_ASSIGN(const std::optional<int64_t> question, PutQuestion(*this, a));
    KVG_TRY(Execute(*this,
                    "INSERT INTO answer (sample_id, turn, prediction, answers, score, tokens_out,"
                    " stopped, question_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    id, turn++, a.prediction, ReferencesJson(a.references), a.score, a.tokens_out,
                    a.stopped, question));
  }
  KVG_TRY(PutLayers(*this, id, row.layers));
  for (const ModalityStatRow& m : row.modalities) {
    KVG_TRY(Execute(*this,
                    "INSERT INTO modality_stat (sample_id, layer, modality, entries_before,"
                    " entries_after, bytes, attention, attention_kept)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    id, m.layer, m.modality, m.entries_before, m.entries_after, m.bytes,
                    m.attention, m.attention_kept));
  }
  for (const MemoryRow& m : row.memory) {
    KVG_TRY(
        Execute(*this,
                "INSERT INTO memory (sample_id, moment, nominal_bytes, full_bytes, payload_bytes,"
                " scales_bytes, indices_bytes, outliers_bytes, low_rank_bytes, biases_bytes,"
                " codebooks_bytes, projections_bytes, reader_bytes, slack_bytes, resident_bytes,"
                " peak_bytes, host_bytes)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                id, NameOf(m.moment), m.nominal_bytes, m.full_bytes, m.payload_bytes,
                m.scales_bytes, m.indices_bytes, m.outliers_bytes, m.low_rank_bytes, m.biases_bytes,
                m.codebooks_bytes, m.projections_bytes, m.reader_bytes, m.slack_bytes,
                m.resident_bytes, m.peak_bytes, m.host_bytes));
  }
  if (row.latency) KVG_TRY(PutLatency(row.cell, row.run, id, *row.latency));
  return old ? WriteOutcome::kReplaced : WriteOutcome::kNew;
}

Result<int64_t> ResultStore::AddRun(const RunRow& run) {
  KVG_TRY(impl_->Writable());
  KVG_ASSIGN(Transaction transaction, Transaction::Begin(impl_->db));
  KVG_ASSIGN(const int64_t id, impl_->PutRun(run));
  KVG_TRY(transaction.Commit());
  return id;
}

Status ResultStore::FinishRun(int64_t run, const std::string& finished_at) {
  KVG_TRY(impl_->Writable());
  KVG_TRY(Execute(*impl_, "UPDATE run SET finished_at = ? WHERE id = ?", finished_at, run));
  return {};
}

Status ResultStore::AddEvent(int64_t run, const EventRow& event) {
  KVG_TRY(impl_->Writable());
  KVG_TRY(Execute(*impl_,
                  "INSERT INTO event (run_id, ordinal, at, kind, message)"
                  " SELECT ?1, coalesce(max(ordinal) + 1, 0), ?2, ?3, ?4 FROM event"
                  " WHERE run_id = ?1",
                  run, event.at, event.kind, RepairUtf8(event.message)));
  return {};
}

Result<int64_t> ResultStore::AddCell(const CellRow& cell) {
  KVG_TRY(impl_->Writable());
  KVG_ASSIGN(Transaction transaction, Transaction::Begin(impl_->db));
  KVG_ASSIGN(const int64_t id, impl_->PutCell(cell));
  KVG_TRY(transaction.Commit());
  return id;
}

Result<WriteOutcome> ResultStore::Write(const SampleRow& sample) {
  KVG_ASSIGN(const std::vector<WriteOutcome> outcomes, WriteAll({&sample, 1}));
  return outcomes[0];
}

Result<std::vector<WriteOutcome>> ResultStore::WriteAll(std::span<const SampleRow> samples) {
  KVG_TRY(impl_->Writable());
  KVG_ASSIGN(Transaction transaction, Transaction::Begin(impl_->db));
  std::vector<WriteOutcome> outcomes;
  for (const SampleRow& sample : samples) {
    KVG_ASSIGN(const WriteOutcome outcome, impl_->PutSample(sample));
    outcomes.push_back(outcome);
  }
  KVG_TRY(transaction.Commit());
  return outcomes;
}

Status ResultStore::WriteLatency(int64_t cell, int64_t run, std::span<const LatencyRow> rows) {
  KVG_TRY(impl_->Writable());
  KVG_ASSIGN(Transaction transaction, Transaction::Begin(impl_->db));
  for (const LatencyRow& row : rows) KVG_TRY(impl_->PutLatency(cell, run, std::nullopt, row));
  return transaction.Commit();
}

}  // namespace kvgauge
