// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cstring>

#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/schema.h"
#include "src/store_impl.h"

namespace kvgauge {
namespace {

// The enumerator among `all` that is stored under `name`.
template <class Enum, size_t kCount>
Result<Enum> ParseName(const std::string& path, const std::string& name,
                       const Enum (&all)[kCount]) {
  std::vector<std::string> known;
  for (const Enum value : all) {
    if (NameOf(value) == name) return value;
    known.emplace_back(NameOf(value));
  }
  return BadInput(
      StrCat(path, ": holds the word ", Quoted(name), ", expected one of ", Join(known, ", ")));
}

Result<SampleStatus> ParseStatus(const std::string& path, const std::string& name) {
  return ParseName(path, name, {SampleStatus::kOk, SampleStatus::kFailed, SampleStatus::kSkipped});
}

Result<EngagementMark> ParseEngagement(const std::string& path, const std::string& name) {
  return ParseName(path, name,
                   {EngagementMark::kNone, EngagementMark::kEngaged, EngagementMark::kNotEngaged,
                    EngagementMark::kIdentity});
}

Result<std::vector<std::string>> ParseReferences(const std::string& path, const std::string& text) {
  KVG_ASSIGN(const Json json, ParseJson(text, StrCat(path, ": answers")));
  std::vector<std::string> references;
  for (const Json& item : json) {
    if (!json.is_array() || !item.is_string()) {
      return BadInput(StrCat(path, ": answers ", Quoted(text), ", expected a list of texts"));
    }
    references.push_back(item.get<std::string>());
  }
  return references;
}

constexpr char kLatencyColumns[] =
    "SELECT run.key, isolated, context_tokens, repetition, prefill_s, score_s, select_s, compact_s,"
    " quantise_s, attend_s, other_s, vision_s, ttft_s, tpot_p50_s, tpot_p90_s, tpot_p99_s, steps,"
    " resident_bytes, peak_bytes, others_share FROM latency JOIN run ON run.id = latency.run_id";

// A row of kLatencyColumns.
LatencyRow ReadLatencyRow(const Statement& row) {
  LatencyRow l;
  l.run_key = row.Text(0);
  l.isolated = row.Int(1) != 0;
  l.context_tokens = row.Int(2);
  l.repetition = row.Int(3);
  double* const seconds[] = {&l.prefill_s,  &l.score_s,    &l.select_s,   &l.compact_s,
                             &l.quantise_s, &l.attend_s,   &l.other_s,    &l.vision_s,
                             &l.ttft_s,     &l.tpot_p50_s, &l.tpot_p90_s, &l.tpot_p99_s};
  int column = 4;
  for (double* value : seconds) *value = row.Real(column++);
  l.steps = row.Int(column++);
  l.resident_bytes = row.Int(column++);
  l.peak_bytes = row.Int(column++);
  l.others_share = row.Real(column);
  return l;
}

// Type and length before each value, so that no two rows spell the same bytes.
void Digest(const Statement& row, Sha256& sha) {
  for (int column = 0; column < sqlite3_column_count(row.get()); ++column) {
    const int type = sqlite3_column_type(row.get(), column);
    std::string value;
    if (type == SQLITE_FLOAT) {
      const double number = row.Real(column);
      value.resize(sizeof(number));
      std::memcpy(value.data(), &number, sizeof(number));
    } else if (type != SQLITE_NULL) {
      value = row.Text(column);
    }
    const std::string head = StrCat(type, ":", value.size(), ":");
    sha.Update(head.data(), head.size());
    sha.Update(value.data(), value.size());
  }
}

}  // namespace

namespace {

// "[1,-2.5]" as this program writes it, without a tree of values; nothing for all else.
std::optional<std::vector<double>> ParsePlainNumbers(std::string_view text) {
  if (text.size() < 3 || text.front() != '[' || text.back() != ']') return std::nullopt;
  const char *at = text.data() + 1, *const end = text.data() + text.size() - 1;
  std::vector<double> numbers;
  while (true) {
    // Words such as inf are numbers to from_chars alone.
    const char* const digit = at != end && *at == '-' ? at + 1 : at;
    if (digit == end || *digit < '0' || *digit > '9') return std::nullopt;
    const auto [next, error] = std::from_chars(at, end, numbers.emplace_back());
    if (error != std::errc()) return std::nullopt;
    if (next == end) return numbers;
    if (*next != ',') return std::nullopt;
    at = next + 1;
  }
}

}  // namespace

Result<std::vector<double>> ParseNumbers(const std::string& path, const std::string& text) {
  if (text.empty()) return std::vector<double>();
  if (auto numbers = ParsePlainNumbers(text)) return std::move(*numbers);
  KVG_ASSIGN(const Json json, ParseJson(text, StrCat(path, ": numbers")));
  std::vector<double> numbers;
  for (const Json& item : json) {
    if (!json.is_array() || !item.is_number()) {
      return BadInput(StrCat(path, ": holds ", Quoted(text), ", expected a list of numbers"));
    }
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

Status ResultStore::Impl::ReadAnswers(int64_t sample, SampleRow& row) {
  KVG_ASSIGN(auto a, Cached("SELECT prediction, answers, score, tokens_out, stopped, text, excerpt"
                            " FROM answer LEFT JOIN question ON question.id = question_id"
                            " WHERE sample_id = ? ORDER BY turn"));
  a->Bind(sample);
  while (true) {
    KVG_ASSIGN(const bool more, a->Step());
    if (!more) return {};
    AnswerRow answer;
    answer.prediction = a->Text(0);
    KVG_ASSIGN(answer.references, ParseReferences(path, a->Text(1)));
    answer.score = a->MaybeReal(2);
    answer.tokens_out = a->Int(3);
    answer.stopped = a->Int(4) != 0;
    answer.question = a->Text(5);
    answer.excerpt = a->Text(6);
    row.answers.push_back(std::move(answer));
  }
}

Status ResultStore::Impl::ReadLayers(int64_t sample, SampleRow& row) {
  KVG_ASSIGN(auto l,
             Cached("SELECT layer, head, entries_before, entries_after, bits, merged, reads,"
                    " attention_error, kept_by_depth, answer_kept FROM layer_stat"
                    " WHERE sample_id = ?"
                    " ORDER BY layer, head"));
  l->Bind(sample);
  while (true) {
    KVG_ASSIGN(const bool more, l->Step());
    if (!more) return {};
    KVG_ASSIGN(std::vector<double> kept_by_depth, ParseNumbers(path, l->Text(8)));
    row.layers.push_back({.layer = l->Int(0),
                          .head = l->Int(1),
                          .entries_before = l->MaybeInt(2),
                          .entries_after = l->MaybeInt(3),
                          .bits = l->MaybeReal(4),
                          .merged = l->MaybeInt(5),
                          .reads = l->MaybeReal(6),
                          .attention_error = l->MaybeReal(7),
                          .kept_by_depth = std::move(kept_by_depth),
                          .answer_kept = l->MaybeReal(9)});
  }
}

Status ResultStore::Impl::ReadModalities(int64_t sample, SampleRow& row) {
  KVG_ASSIGN(auto m, Cached("SELECT layer, modality, entries_before, entries_after, bytes,"
                            " attention, attention_kept FROM modality_stat WHERE sample_id = ?"
                            " ORDER BY layer, modality"));
  m->Bind(sample);
  while (true) {
    KVG_ASSIGN(const bool more, m->Step());
    if (!more) return {};
    row.modalities.push_back({.layer = m->Int(0),
                              .modality = m->Text(1),
                              .entries_before = m->Int(2),
                              .entries_after = m->Int(3),
                              .bytes = m->Int(4),
                              .attention = m->Real(5),
                              .attention_kept = m->Real(6)});
  }
}

Status ResultStore::Impl::ReadMemory(int64_t sample, SampleRow& row) {
  KVG_ASSIGN(auto m,
             Cached("SELECT moment, nominal_bytes, full_bytes, payload_bytes, scales_bytes,"
                    " indices_bytes, outliers_bytes, low_rank_bytes, biases_bytes,"
                    " codebooks_bytes, projections_bytes, reader_bytes, slack_bytes,"
                    " resident_bytes, peak_bytes, host_bytes FROM memory WHERE sample_id = ?"
                    " ORDER BY moment"));
  m->Bind(sample);
  while (true) {
    KVG_ASSIGN(const bool more, m->Step());
    if (!more) return {};
    MemoryRow memory;
    KVG_ASSIGN(memory.moment,
               ParseName(path, m->Text(0), {MemoryMoment::kCompressed, MemoryMoment::kFinal}));
    int64_t* const bytes[] = {
        &memory.nominal_bytes,     &memory.full_bytes,    &memory.payload_bytes,
        &memory.scales_bytes,      &memory.indices_bytes, &memory.outliers_bytes,
        &memory.low_rank_bytes,    &memory.biases_bytes,  &memory.codebooks_bytes,
        &memory.projections_bytes, &memory.reader_bytes,  &memory.slack_bytes,
        &memory.resident_bytes,    &memory.peak_bytes,    &memory.host_bytes};
    int column = 1;
    for (int64_t* value : bytes) *value = m->Int(column++);
    row.memory.push_back(memory);
  }
}

Result<std::optional<SampleRow>> ResultStore::Impl::ReadSample(int64_t cell,
                                                               const std::string& sample_id) {
  SampleRow row;
  int64_t id = 0;
  std::optional<int64_t> sight;
  {
    KVG_ASSIGN(auto s,
               Cached("SELECT id, run_id, hash, group_key, position, status, reason, score,"
                      " tokens_in, tokens_out, engagement, engagement_reason, compressions,"
                      " kl_divergence, top1_agreement, facts, answer_depth, reads_per_step,"
                      " read_share, parts, images, frames, visual_tokens, patches, sight_id,"
                      " fetched_per_step"
                      " FROM sample"
                      " WHERE cell_id = ? AND sample_key = ?"));
    s->Bind(cell, sample_id);
    KVG_ASSIGN(const bool found, s->Step());
    if (!found) return std::optional<SampleRow>();
    id = s->Int(0);
    row.cell = cell;
    row.run = s->Int(1);
    row.sample_id = sample_id;
    row.hash = s->Text(2);
    row.group = s->Text(3);
    row.position = s->Int(4);
    KVG_ASSIGN(row.status, ParseStatus(path, s->Text(5)));
    row.reason = s->Text(6);
    row.score = s->MaybeReal(7);
    row.tokens_in = s->Int(8);
    row.tokens_out = s->Int(9);
    KVG_ASSIGN(row.engagement, ParseEngagement(path, s->Text(10)));
    row.engagement_reason = s->Text(11);
    row.compressions = s->Int(12);
    row.kl_divergence = s->MaybeReal(13);
    row.top1_agreement = s->MaybeReal(14);
    row.facts = s->Text(15);
    row.answer_depth = s->MaybeReal(16);
    row.reads_per_step = s->MaybeReal(17);
    row.read_share = s->MaybeReal(18);
    KVG_ASSIGN(row.parts, ParseNumbers(path, s->Text(19)));
    row.images = s->Int(20);
    row.frames = s->Int(21);
    row.visual_tokens = s->Int(22);
    row.patches = s->Text(23);
    sight = s->MaybeInt(24);
    row.fetched_per_step = s->MaybeReal(25);
  }
  if (sight) {
    KVG_ASSIGN(row.sight, ReadSight(*sight));
  }
  KVG_TRY(ReadAnswers(id, row));
  KVG_TRY(ReadLayers(id, row));
  KVG_TRY(ReadModalities(id, row));
  KVG_TRY(ReadMemory(id, row));
  static const std::string kOfSample = StrCat(kLatencyColumns, " WHERE sample_id = ?");
  KVG_ASSIGN(auto t, Cached(kOfSample.c_str()));
  t->Bind(id);
  KVG_ASSIGN(const bool timed, t->Step());
  if (timed) row.latency = ReadLatencyRow(*t);
  return std::optional<SampleRow>(std::move(row));
}

Result<std::optional<SampleRow>> ResultStore::Read(int64_t cell, const std::string& sample_id) {
  return impl_->ReadSample(cell, sample_id);
}

Result<std::vector<std::string>> ResultStore::Pending(int64_t cell,
                                                      std::span<const std::string> sample_ids,
                                                      bool retry) {
  KVG_ASSIGN(auto known,
             impl_->Cached("SELECT status FROM sample WHERE cell_id = ? AND sample_key = ?"));
  std::vector<std::string> pending;
  for (const std::string& id : sample_ids) {
    known->Bind(cell, id);
    KVG_ASSIGN(const bool recorded, known->Step());
    if (!recorded || (retry && known->Text(0) != NameOf(SampleStatus::kOk))) pending.push_back(id);
  }
  return pending;
}

Result<std::optional<ResultStore::Recorded>> ResultStore::FindSample(int64_t cell,
                                                                     const std::string& sample_id) {
  KVG_ASSIGN(auto known,
             impl_->Cached("SELECT status, hash FROM sample WHERE cell_id = ? AND sample_key = ?"));
  known->Bind(cell, sample_id);
  KVG_ASSIGN(const bool recorded, known->Step());
  if (!recorded) return std::optional<Recorded>();
  KVG_ASSIGN(const SampleStatus status, ParseStatus(path(), known->Text(0)));
  return std::optional<Recorded>({status, known->Text(1)});
}

Result<std::map<int64_t, int64_t>> ResultStore::SampleCounts() {
  KVG_ASSIGN(auto counts, impl_->Cached("SELECT cell_id, count(*) FROM sample GROUP BY cell_id"));
  std::map<int64_t, int64_t> of_cell;
  while (true) {
    KVG_ASSIGN(const bool more, counts->Step());
    if (!more) return of_cell;
    of_cell[counts->Int(0)] = counts->Int(1);
  }
}

Result<std::vector<StoredRun>> ResultStore::Runs() {
  KVG_ASSIGN(auto r,
             impl_->Cached("SELECT run.id, run.key, machine.facts, command, config, version,"
                           " revision, started_at, finished_at FROM run"
                           " JOIN machine ON machine.id = machine_id ORDER BY run.id"));
  std::vector<StoredRun> runs;
  while (true) {
    KVG_ASSIGN(const bool more, r->Step());
    if (!more) return runs;
    runs.push_back({r->Int(0),
                    {.key = r->Text(1),
                     .machine = {r->Text(2)},
                     .command = r->Text(3),
                     .config = r->Text(4),
                     .version = r->Text(5),
                     .revision = r->Text(6),
                     .started_at = r->Text(7),
                     .finished_at = r->Text(8)}});
  }
}

Result<std::vector<EventRow>> ResultStore::Events(int64_t run) {
  KVG_ASSIGN(auto e, impl_->Cached("SELECT at, kind, message FROM event WHERE run_id = ?"
                                   " ORDER BY ordinal"));
  e->Bind(run);
  std::vector<EventRow> events;
  while (true) {
    KVG_ASSIGN(const bool more, e->Step());
    if (!more) return events;
    events.push_back({e->Text(0), e->Text(1), e->Text(2)});
  }
}

Result<std::vector<StoredCell>> ResultStore::Cells() {
  KVG_ASSIGN(
      auto c,
      impl_->Cached(
          "SELECT c.id, g.key, c.identity, g.protocol, m.fingerprint, m.name, m.facts,"
          " h.name, h.variant, h.title, h.family, h.version, h.spec, h.full_cache,"
          " h.experimental, t.name, t.version, t.spec, c.budget, c.budget_kind, c.budget_value,"
          " c.compress_at, c.seed, t.lower_is_better FROM cell c JOIN signature g ON g.id = "
          "c.signature_id"
          " JOIN model m ON m.id = c.model_id JOIN method h ON h.id = c.method_id"
          " JOIN task t ON t.id = c.task_id"
          " ORDER BY m.name, t.name, h.name, h.variant, c.budget_kind, c.budget_value,"
          " c.compress_at, c.seed, c.key"));
  std::vector<StoredCell> cells;
  while (true) {
    KVG_ASSIGN(const bool more, c->Step());
    if (!more) return cells;
    cells.push_back({.id = c->Int(0),
                     .signature_key = c->Text(1),
                     .cell = {.identity = c->Text(2),
                              .signature = c->Text(3),
                              .model = {c->Text(4), c->Text(5), c->Text(6)},
                              .method = {c->Text(7), c->Text(8), c->Text(9), c->Text(10),
                                         c->Int(11), c->Text(12), c->Int(13) != 0, c->Int(14) != 0},
                              .task = {c->Text(15), c->Int(16), c->Text(17), c->Int(23) != 0},
                              .budget = c->Text(18),
                              .budget_kind = c->Text(19),
                              .budget_value = c->Real(20),
                              .compress_at = c->Text(21),
                              .seed = c->Int(22)}});
  }
}

Result<std::vector<ScoreRow>> ResultStore::Scores(int64_t cell) {
  KVG_ASSIGN(auto s, impl_->Cached("SELECT s.sample_key, s.group_key, s.hash, s.status,"
                                   " s.engagement, s.score, s.tokens_in, s.logical_bytes,"
                                   " s.full_bytes, a.prediction, s.id, s.parts, s.reason,"
                                   " m.resident_bytes"
                                   " FROM sample s LEFT JOIN answer a ON a.sample_id = s.id"
                                   " LEFT JOIN memory m ON m.sample_id = s.id"
                                   " AND m.moment = 'compressed'"
                                   " WHERE s.cell_id = ?"
                                   " ORDER BY s.position, s.sample_key, a.turn"));
  s->Bind(cell);
  std::vector<ScoreRow> rows;
  Sha256 answers;
  int64_t id = -1;
  while (true) {
    KVG_ASSIGN(const bool more, s->Step());
    if (id >= 0 && (!more || s->Int(10) != id)) {
      rows.back().answers_key = answers.Finish();
      answers = Sha256();
    }
    if (!more) return rows;
    if (s->Int(10) != id) {
      id = s->Int(10);
      ScoreRow row;
      row.sample_id = s->Text(0);
      row.group = s->Text(1);
      row.hash = s->Text(2);
      KVG_ASSIGN(row.status, ParseStatus(path(), s->Text(3)));
      KVG_ASSIGN(row.engagement, ParseEngagement(path(), s->Text(4)));
      row.score = s->MaybeReal(5);
      row.tokens_in = s->Int(6);
      row.logical_bytes = s->MaybeInt(7);
      row.full_bytes = s->MaybeInt(8);
      KVG_ASSIGN(row.parts, ParseNumbers(path(), s->Text(11)));
      row.reason = s->Text(12);
      row.resident_bytes = s->MaybeInt(13);
      rows.push_back(std::move(row));
    }
    const std::string prediction = s->Text(9);
    const std::string size = StrCat(prediction.size(), ":");
    answers.Update(size.data(), size.size());
    answers.Update(prediction.data(), prediction.size());
  }
}

Result<std::vector<LatencyRow>> ResultStore::Latency(int64_t cell) {
  static const std::string kIsolated = StrCat(
      kLatencyColumns,
      " WHERE cell_id = ? AND sample_id IS NULL ORDER BY run.key, context_tokens, repetition");
  KVG_ASSIGN(auto l, impl_->Cached(kIsolated.c_str()));
  l->Bind(cell);
  std::vector<LatencyRow> rows;
  while (true) {
    KVG_ASSIGN(const bool more, l->Step());
    if (!more) return rows;
    rows.push_back(ReadLatencyRow(*l));
  }
}

Result<std::vector<LeaderboardRow>> ResultStore::Leaderboard() {
  KVG_ASSIGN(auto r, impl_->Cached("SELECT model, task, method, variant, family, budget,"
                                   " compress_at, signature, seeds, samples, ok, failed, skipped,"
                                   " not_engaged, mean_score, byte_ratio, bytes_per_token, rank"
                                   " FROM leaderboard"));
  std::vector<LeaderboardRow> rows;
  while (true) {
    KVG_ASSIGN(const bool more, r->Step());
    if (!more) return rows;
    rows.push_back({.model = r->Text(0),
                    .task = r->Text(1),
                    .method = r->Text(2),
                    .variant = r->Text(3),
                    .family = r->Text(4),
                    .budget = r->Text(5),
                    .compress_at = r->Text(6),
                    .signature = r->Text(7),
                    .seeds = r->Int(8),
                    .samples = r->Int(9),
                    .ok = r->Int(10),
                    .failed = r->Int(11),
                    .skipped = r->Int(12),
                    .not_engaged = r->Int(13),
                    .mean_score = r->MaybeReal(14),
                    .byte_ratio = r->MaybeReal(15),
                    .bytes_per_token = r->MaybeReal(16),
                    .rank = r->MaybeInt(17)});
  }
}

Result<std::string> ResultStore::ResultDigest() {
  Sha256 sha;
  for (const char* query : ResultQueries()) {
    KVG_ASSIGN(Statement statement, impl_->db.Prepare(query));
    sha.Update(query, std::strlen(query));
    while (true) {
      KVG_ASSIGN(const bool more, statement.Step());
      if (!more) break;
      Digest(statement, sha);
    }
  }
  return sha.Finish();
}

}  // namespace kvgauge
