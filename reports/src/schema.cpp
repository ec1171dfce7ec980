// SPDX-License-Identifier: Apache-2.0
#include "src/schema.h"

#include <array>

#include "core/strings.h"

namespace kvgauge {
namespace {

// Released steps are never edited: a file of that version lies on somebody's disk.
constexpr const char* kMigrations[] = {
    // 0 -> 1: what was run, and what came of it.
    R"sql(
CREATE TABLE machine (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  facts TEXT NOT NULL
) STRICT;
CREATE TABLE run (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  machine_id INTEGER NOT NULL REFERENCES machine,
  command TEXT NOT NULL,
  config TEXT NOT NULL,
  version TEXT NOT NULL,
  revision TEXT NOT NULL,
  started_at TEXT NOT NULL,
  finished_at TEXT
) STRICT;
CREATE TABLE model (
  id INTEGER PRIMARY KEY,
  fingerprint TEXT NOT NULL,
  name TEXT NOT NULL,
  facts TEXT NOT NULL,
  UNIQUE (fingerprint, name)
) STRICT;
CREATE TABLE method (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  variant TEXT NOT NULL,
  title TEXT NOT NULL,
  family TEXT NOT NULL,
  version INTEGER NOT NULL,
  spec TEXT NOT NULL,
  full_cache INTEGER NOT NULL CHECK (full_cache IN (0, 1))
) STRICT;
CREATE TABLE task (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  version INTEGER NOT NULL,
  spec TEXT NOT NULL
) STRICT;
CREATE TABLE signature (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  protocol TEXT NOT NULL
) STRICT;
CREATE TABLE cell (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  identity TEXT NOT NULL,
  signature_id INTEGER NOT NULL REFERENCES signature,
  model_id INTEGER NOT NULL REFERENCES model,
  method_id INTEGER NOT NULL REFERENCES method,
  task_id INTEGER NOT NULL REFERENCES task,
  budget TEXT NOT NULL,
  budget_kind TEXT NOT NULL
    CHECK (budget_kind IN ('none', 'entries', 'fraction', 'bytes_per_token')),
  budget_value REAL NOT NULL,
  compress_at TEXT NOT NULL CHECK (compress_at IN ('prompt', 'context', 'turn')),
  seed INTEGER NOT NULL
) STRICT;
CREATE TABLE sample (
  id INTEGER PRIMARY KEY,
  cell_id INTEGER NOT NULL REFERENCES cell,
  run_id INTEGER NOT NULL REFERENCES run,
  sample_key TEXT NOT NULL,
  hash TEXT NOT NULL,
  group_key TEXT NOT NULL,
  position INTEGER NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('ok', 'failed', 'skipped')),
  reason TEXT NOT NULL CHECK ((status = 'ok') = (reason = '')),
  score REAL CHECK (score IS NULL OR status = 'ok'),
  tokens_in INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  engagement TEXT NOT NULL
    CHECK (engagement IN ('none', 'engaged', 'not_engaged', 'identity')),
  engagement_reason TEXT NOT NULL,
  compressions INTEGER NOT NULL,
  logical_bytes INTEGER,
  full_bytes INTEGER,
  UNIQUE (cell_id, sample_key)
) STRICT;
CREATE TABLE answer (
  sample_id INTEGER NOT NULL REFERENCES sample ON DELETE CASCADE,
  turn INTEGER NOT NULL CHECK (turn >= 0),
  prediction TEXT NOT NULL,
  answers TEXT NOT NULL,
  score REAL,
  tokens_out INTEGER NOT NULL,
  stopped INTEGER NOT NULL CHECK (stopped IN (0, 1)),
  PRIMARY KEY (sample_id, turn)
) STRICT, WITHOUT ROWID;
CREATE TABLE layer_stat (
  sample_id INTEGER NOT NULL REFERENCES sample ON DELETE CASCADE,
  layer INTEGER NOT NULL CHECK (layer >= 0),
  head INTEGER NOT NULL CHECK (head >= -1),
  entries_before INTEGER,
  entries_after INTEGER,
  bits REAL,
  merged INTEGER,
  reads REAL,
  PRIMARY KEY (sample_id, layer, head)
) STRICT, WITHOUT ROWID;
CREATE TABLE memory (
  sample_id INTEGER NOT NULL REFERENCES sample ON DELETE CASCADE,
  moment TEXT NOT NULL CHECK (moment IN ('compressed', 'final')),
  nominal_bytes INTEGER NOT NULL,
  full_bytes INTEGER NOT NULL,
  payload_bytes INTEGER NOT NULL,
  scales_bytes INTEGER NOT NULL,
  indices_bytes INTEGER NOT NULL,
  outliers_bytes INTEGER NOT NULL,
  low_rank_bytes INTEGER NOT NULL,
  biases_bytes INTEGER NOT NULL,
  codebooks_bytes INTEGER NOT NULL,
  projections_bytes INTEGER NOT NULL,
  reader_bytes INTEGER NOT NULL,
  slack_bytes INTEGER NOT NULL,
  resident_bytes INTEGER NOT NULL,
  peak_bytes INTEGER NOT NULL,
  logical_bytes INTEGER NOT NULL GENERATED ALWAYS AS (
    payload_bytes + scales_bytes + indices_bytes + outliers_bytes + low_rank_bytes + biases_bytes
    + codebooks_bytes + projections_bytes + reader_bytes) VIRTUAL,
  PRIMARY KEY (sample_id, moment)
) STRICT, WITHOUT ROWID;
CREATE TABLE latency (
  id INTEGER PRIMARY KEY,
  cell_id INTEGER NOT NULL REFERENCES cell,
  run_id INTEGER NOT NULL REFERENCES run,
  sample_id INTEGER REFERENCES sample ON DELETE CASCADE,
  isolated INTEGER NOT NULL CHECK (isolated = (sample_id IS NULL)),
  context_tokens INTEGER NOT NULL,
  repetition INTEGER NOT NULL,
  prefill_s REAL NOT NULL,
  score_s REAL NOT NULL,
  select_s REAL NOT NULL,
  compact_s REAL NOT NULL,
  quantise_s REAL NOT NULL,
  attend_s REAL NOT NULL,
  other_s REAL NOT NULL,
  ttft_s REAL NOT NULL,
  tpot_p50_s REAL NOT NULL,
  tpot_p90_s REAL NOT NULL,
  tpot_p99_s REAL NOT NULL,
  steps INTEGER NOT NULL,
  resident_bytes INTEGER NOT NULL,
  peak_bytes INTEGER NOT NULL,
  others_share REAL NOT NULL
) STRICT;
CREATE TABLE event (
  id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run,
  ordinal INTEGER NOT NULL,
  at TEXT NOT NULL,
  kind TEXT NOT NULL,
  message TEXT NOT NULL,
  UNIQUE (run_id, ordinal)
) STRICT;
CREATE UNIQUE INDEX latency_isolated ON latency (cell_id, run_id, context_tokens, repetition)
  WHERE sample_id IS NULL;
CREATE UNIQUE INDEX latency_sample ON latency (sample_id) WHERE sample_id IS NOT NULL;
CREATE INDEX sample_rank
  ON sample (cell_id, status, engagement, score, logical_bytes, full_bytes, tokens_in);
)sql",
    // 1 -> 2: fidelity of the teacher-forced pass.
    R"sql(
ALTER TABLE sample ADD COLUMN kl_divergence REAL;
ALTER TABLE sample ADD COLUMN top1_agreement REAL;
ALTER TABLE layer_stat ADD COLUMN attention_error REAL;
)sql",
    // 2 -> 3: what was asked, where its answer stood, and what of it was kept.
    R"sql(
CREATE TABLE question (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  text TEXT NOT NULL,
  excerpt TEXT NOT NULL
) STRICT;
ALTER TABLE answer ADD COLUMN question_id INTEGER REFERENCES question;
ALTER TABLE sample ADD COLUMN facts TEXT NOT NULL DEFAULT '{}';
ALTER TABLE sample ADD COLUMN answer_depth REAL;
ALTER TABLE sample ADD COLUMN reads_per_step REAL;
ALTER TABLE sample ADD COLUMN read_share REAL;
ALTER TABLE sample ADD COLUMN parts TEXT;
ALTER TABLE layer_stat ADD COLUMN kept_by_depth TEXT;
ALTER TABLE layer_stat ADD COLUMN answer_kept REAL;
)sql",
    // 3 -> 4: which methods nothing independent holds.
    R"sql(
ALTER TABLE method ADD COLUMN experimental INTEGER NOT NULL DEFAULT 0
  CHECK (experimental IN (0, 1));
)sql",
    // 4 -> 5: the direction of the task's metric. Perplexity was the one of which less is better.
    R"sql(
ALTER TABLE task ADD COLUMN lower_is_better INTEGER NOT NULL DEFAULT 0
  CHECK (lower_is_better IN (0, 1));
UPDATE task SET lower_is_better = 1
WHERE CASE WHEN json_valid(spec) THEN json_extract(spec, '$.metric') END = 'perplexity';
)sql",
    // 5 -> 6: what was held of text, pictures and videos.
    R"sql(
CREATE TABLE modality_stat (
  sample_id INTEGER NOT NULL REFERENCES sample ON DELETE CASCADE,
  layer INTEGER NOT NULL CHECK (layer >= 0),
  modality TEXT NOT NULL CHECK (modality IN ('text', 'image', 'video')),
  entries_before INTEGER NOT NULL,
  entries_after INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  attention REAL NOT NULL,
  attention_kept REAL NOT NULL,
  PRIMARY KEY (sample_id, layer, modality)
) STRICT, WITHOUT ROWID;
)sql",
    // 6 -> 7: what samples show, and what looking at it took.
    R"sql(
ALTER TABLE sample ADD COLUMN images INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sample ADD COLUMN frames INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sample ADD COLUMN visual_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE latency ADD COLUMN vision_s REAL NOT NULL DEFAULT 0;
)sql",
    // 7 -> 8: the pictures of samples, and which of their patches were kept.
    R"sql(
CREATE TABLE picture (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  width INTEGER NOT NULL,
  height INTEGER NOT NULL,
  thumbnail BLOB NOT NULL
) STRICT;
CREATE TABLE sight (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  spec TEXT NOT NULL
) STRICT;
ALTER TABLE sample ADD COLUMN sight_id INTEGER REFERENCES sight;
ALTER TABLE sample ADD COLUMN patches TEXT;
)sql",
    // 8 -> 9: prompts that were read in chunks, by the tokens of one.
    R"sql(
DROP VIEW IF EXISTS leaderboard;
DROP VIEW IF EXISTS cell_stat;
DROP VIEW IF EXISTS result;
ALTER TABLE cell ADD COLUMN place TEXT NOT NULL DEFAULT 'prompt'
  CHECK (place IN ('prompt', 'context', 'turn') OR place GLOB 'chunk [1-9]*');
UPDATE cell SET place = compress_at;
ALTER TABLE cell DROP COLUMN compress_at;
ALTER TABLE cell RENAME COLUMN place TO compress_at;
)sql",
    // 9 -> 10: what a method holds and serves in a memory.
    R"sql(
CREATE TABLE capacity (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL,
  identity TEXT NOT NULL,
  run_id INTEGER NOT NULL REFERENCES run,
  model_id INTEGER NOT NULL REFERENCES model,
  method_id INTEGER NOT NULL REFERENCES method,
  budget TEXT NOT NULL,
  budget_kind TEXT NOT NULL
    CHECK (budget_kind IN ('none', 'entries', 'fraction', 'bytes_per_token')),
  budget_value REAL NOT NULL,
  workload TEXT NOT NULL,
  policy TEXT NOT NULL,
  batch INTEGER NOT NULL CHECK (batch >= 0),
  memory_bytes INTEGER CHECK (memory_bytes > 0),
  host_memory_bytes INTEGER CHECK (host_memory_bytes > 0),
  repetition INTEGER NOT NULL CHECK (repetition >= 0),
  refused TEXT NOT NULL,
  max_batch INTEGER NOT NULL,
  requests INTEGER NOT NULL,
  served INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  failure TEXT NOT NULL CHECK ((failed = 0) = (failure = '')),
  held INTEGER NOT NULL,
  fit INTEGER,
  decoding INTEGER NOT NULL,
  tokens_in INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  seconds REAL NOT NULL,
  busy_s REAL NOT NULL,
  tokens_per_s REAL NOT NULL,
  ttft_p50_s REAL NOT NULL,
  ttft_p90_s REAL NOT NULL,
  ttft_p99_s REAL NOT NULL,
  tpot_p50_s REAL NOT NULL,
  tpot_p90_s REAL NOT NULL,
  tpot_p99_s REAL NOT NULL,
  e2e_p50_s REAL NOT NULL,
  e2e_p90_s REAL NOT NULL,
  e2e_p99_s REAL NOT NULL,
  passes INTEGER NOT NULL,
  prompt_rows INTEGER NOT NULL,
  preemptions INTEGER NOT NULL,
  shared_tokens INTEGER NOT NULL,
  replayed_tokens INTEGER NOT NULL,
  weight_bytes INTEGER NOT NULL,
  working_bytes INTEGER NOT NULL,
  planned_bytes INTEGER NOT NULL,
  peak_bytes INTEGER NOT NULL,
  sequence_bytes INTEGER NOT NULL,
  host_bytes INTEGER NOT NULL,
  not_engaged INTEGER NOT NULL,
  not_engaged_because TEXT NOT NULL,
  answers_key TEXT NOT NULL,
  others_share REAL NOT NULL,
  UNIQUE (key, run_id, repetition)
) STRICT;
)sql",
    // 10 -> 11: what a method's cache drafts for the full one.
    R"sql(
CREATE TABLE speculation (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL,
  identity TEXT NOT NULL,
  run_id INTEGER NOT NULL REFERENCES run,
  model_id INTEGER NOT NULL REFERENCES model,
  method_id INTEGER NOT NULL REFERENCES method,
  budget TEXT NOT NULL,
  budget_kind TEXT NOT NULL
    CHECK (budget_kind IN ('none', 'entries', 'fraction', 'bytes_per_token')),
  budget_value REAL NOT NULL,
  form TEXT NOT NULL,
  workload TEXT NOT NULL,
  gamma INTEGER NOT NULL CHECK (gamma > 0),
  prompt INTEGER NOT NULL CHECK (prompt >= 0),
  repetition INTEGER NOT NULL CHECK (repetition >= 0),
  prompt_tokens INTEGER NOT NULL,
  answer_tokens INTEGER NOT NULL,
  checks INTEGER NOT NULL,
  draft_steps INTEGER NOT NULL,
  drafted INTEGER NOT NULL,
  accepted INTEGER NOT NULL CHECK (accepted <= drafted),
  drafted_at TEXT NOT NULL,
  accepted_at TEXT NOT NULL,
  draft_s REAL NOT NULL,
  check_s REAL NOT NULL,
  other_s REAL NOT NULL,
  full_s REAL NOT NULL,
  draft_bytes INTEGER NOT NULL,
  judge_bytes INTEGER NOT NULL,
  held_bytes INTEGER NOT NULL,
  not_engaged INTEGER NOT NULL CHECK (not_engaged IN (0, 1)),
  not_engaged_because TEXT NOT NULL,
  answer_key TEXT NOT NULL,
  others_share REAL NOT NULL,
  acceptance REAL GENERATED ALWAYS AS (1.0 * accepted / nullif(drafted, 0)) VIRTUAL,
  accepted_per_check REAL GENERATED ALWAYS AS (1.0 * accepted / nullif(checks, 0)) VIRTUAL,
  tokens_per_s REAL GENERATED ALWAYS AS (
    (answer_tokens - 1) / nullif(draft_s + check_s + other_s, 0)) VIRTUAL,
  full_tokens_per_s REAL GENERATED ALWAYS AS ((answer_tokens - 1) / nullif(full_s, 0)) VIRTUAL,
  UNIQUE (key, run_id, prompt, repetition)
) STRICT;
)sql",
    // 11 -> 12: what of a cache lies on the host, and what a step fetches of it.
    R"sql(
ALTER TABLE memory ADD COLUMN host_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sample ADD COLUMN fetched_per_step REAL;
)sql",
};
static_assert(std::size(kMigrations) == kSchemaVersion);

// Views hold nothing, so they are made anew by every migration.
constexpr const char* kViews = R"sql(
DROP VIEW IF EXISTS leaderboard;
DROP VIEW IF EXISTS cell_stat;
DROP VIEW IF EXISTS result;
CREATE VIEW cell_stat AS
SELECT c.id AS cell_id, c.key AS cell_key, model.name AS model, task.name AS task,
       method.name AS method, method.variant AS variant, method.family AS family,
       method.full_cache AS full_cache, c.budget AS budget, c.budget_kind AS budget_kind,
       c.budget_value AS budget_value, c.compress_at AS compress_at, c.seed AS seed,
       signature.key AS signature,
       task.lower_is_better AS lower_is_better, s.*
FROM cell c
JOIN model ON model.id = c.model_id
JOIN method ON method.id = c.method_id
JOIN task ON task.id = c.task_id
JOIN signature ON signature.id = c.signature_id
JOIN (SELECT cell_id AS of_cell, count(*) AS samples, sum(status = 'ok') AS ok,
             sum(status = 'failed') AS failed, sum(status = 'skipped') AS skipped,
             sum(engagement = 'not_engaged') AS not_engaged, count(score) AS scored,
             avg(score) AS mean_score, min(score) AS min_score, max(score) AS max_score,
             sum(tokens_in) FILTER (WHERE status = 'ok') AS tokens_in,
             sum(logical_bytes) FILTER (WHERE status = 'ok') AS logical_bytes,
             sum(full_bytes) FILTER (WHERE status = 'ok') AS full_bytes
      FROM sample GROUP BY cell_id) s ON s.of_cell = c.id;
CREATE VIEW leaderboard AS
SELECT model, task, method, variant, family, budget, compress_at, signature, seeds, samples, ok,
       failed, skipped, not_engaged, mean_score, byte_ratio, bytes_per_token,
       CASE WHEN ranked THEN rank() OVER (
         PARTITION BY model, task, compress_at, signature, ranked
         ORDER BY iif(lower_is_better, mean_score, -mean_score), byte_ratio) END AS rank
FROM (SELECT model, task, method, variant, family, budget, budget_kind, budget_value, compress_at,
             signature, count(*) AS seeds, sum(samples) AS samples, sum(ok) AS ok,
             sum(failed) AS failed, sum(skipped) AS skipped, sum(not_engaged) AS not_engaged,
             sum(mean_score * scored) / nullif(sum(scored), 0) AS mean_score,
             1.0 * sum(logical_bytes) / nullif(sum(full_bytes), 0) AS byte_ratio,
             1.0 * sum(logical_bytes) / nullif(sum(tokens_in), 0) AS bytes_per_token,
             max(lower_is_better) AS lower_is_better,
             sum(not_engaged) = 0 AND sum(scored) > 0 AS ranked
      FROM cell_stat
      GROUP BY model, task, method, variant, family, budget, compress_at, signature)
ORDER BY model, task, compress_at, signature, rank IS NULL, rank, method, variant, budget_kind,
         budget_value;
CREATE VIEW result AS
SELECT model.name AS model, task.name AS task, method.name AS method, method.variant AS variant,
       c.budget AS budget, c.compress_at AS compress_at, c.seed AS seed, s.sample_key AS sample,
       s.group_key AS group_key, s.status AS status, s.reason AS reason, s.score AS score,
       s.tokens_in AS tokens_in, s.tokens_out AS tokens_out, s.images AS images,
       s.frames AS frames, s.visual_tokens AS visual_tokens, s.engagement AS engagement,
       s.engagement_reason AS engagement_reason, s.logical_bytes AS logical_bytes,
       s.full_bytes AS full_bytes, s.kl_divergence AS kl_divergence,
       s.top1_agreement AS top1_agreement, s.facts AS facts, s.answer_depth AS answer_depth,
       answer.turn AS turn, question.text AS question, question.excerpt AS excerpt,
       answer.prediction AS prediction, answer.answers AS answers, answer.score AS turn_score,
       c.key AS cell_key, signature.key AS signature
FROM sample s
JOIN cell c ON c.id = s.cell_id
JOIN model ON model.id = c.model_id
JOIN method ON method.id = c.method_id
JOIN task ON task.id = c.task_id
JOIN signature ON signature.id = c.signature_id
LEFT JOIN answer ON answer.sample_id = s.id
LEFT JOIN question ON question.id = answer.question_id;
)sql";

// Names, types and constraints of all columns of all tables, one line each.
constexpr const char* kDescribe =
    "SELECT coalesce(group_concat(line, char(10)), '') FROM ("
    R"(  SELECT m.type || ' ' || m.name || '.' || p.name || ' ' || p.type || ' ' || p."notnull")"
    "         || ' ' || p.pk || ' ' || p.hidden AS line"
    "  FROM sqlite_schema m, pragma_table_xinfo(m.name) p"
    "  WHERE m.name NOT LIKE 'sqlite_%' AND m.type = 'table' ORDER BY m.name, p.cid)";

}  // namespace

Status Migrate(Database& database, int64_t version) {
  KVG_ASSIGN(Transaction transaction, Transaction::Begin(database));
  for (int64_t step = version; step < kSchemaVersion; ++step) {
    KVG_TRY(database.Exec(kMigrations[step]));
  }
  KVG_TRY(database.Exec(kViews));
  KVG_TRY(database.Exec(StrCat("PRAGMA user_version = ", kSchemaVersion).c_str()));
  KVG_TRY(database.Exec(StrCat("PRAGMA application_id = ", kApplicationId).c_str()));
  return transaction.Commit();
}

Status CheckTables(Database& database) {
  KVG_ASSIGN(Database fresh,
             Database::Open(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, ":memory:"));
  KVG_TRY(Migrate(fresh, 0));
  KVG_ASSIGN(const std::string want, fresh.QueryText(kDescribe));
  KVG_ASSIGN(const std::string got, database.QueryText(kDescribe));
  if (got == want) return {};
  const std::vector<std::string> wanted = Split(want, '\n'), found = Split(got, '\n');
  size_t i = 0;
  while (i < wanted.size() && i < found.size() && wanted[i] == found[i]) ++i;
  return BadInput(StrCat(database.name(), ": says schema version ", kSchemaVersion,
                         " but its tables differ, first at ",
                         i < found.size() ? Quoted(found[i], 120) : "their end", ", expected ",
                         i < wanted.size() ? Quoted(wanted[i], 120) : "no more columns",
                         "; something else has edited the file"));
}

std::span<const char* const> ResultQueries() {
  static constexpr const char* kQueries[] = {
      "SELECT c.key, c.identity, g.protocol, m.fingerprint, m.name, h.spec, h.variant, t.spec"
      " FROM cell c JOIN signature g ON g.id = c.signature_id JOIN model m ON m.id = c.model_id"
      " JOIN method h ON h.id = c.method_id JOIN task t ON t.id = c.task_id ORDER BY c.key",
      "SELECT c.key, s.sample_key, s.hash, s.group_key, s.position, s.status, s.reason, s.score,"
      " s.tokens_in, s.tokens_out, s.engagement, s.engagement_reason, s.compressions,"
      " s.logical_bytes, s.full_bytes, s.kl_divergence, s.top1_agreement,"
      " s.facts, s.answer_depth, s.reads_per_step, s.read_share, s.parts, s.images, s.frames,"
      " s.visual_tokens, g.spec, s.patches, s.fetched_per_step FROM sample s JOIN cell c ON c.id = "
      "s.cell_id"
      " LEFT JOIN sight g ON g.id = s.sight_id ORDER BY c.key, s.sample_key",
      "SELECT c.key, s.sample_key, a.turn, a.prediction, a.answers, a.score, a.tokens_out,"
      " a.stopped, q.text, q.excerpt FROM answer a JOIN sample s ON s.id = a.sample_id"
      " JOIN cell c ON c.id = s.cell_id LEFT JOIN question q ON q.id = a.question_id"
      " ORDER BY c.key, s.sample_key, a.turn",
      "SELECT c.key, s.sample_key, l.layer, l.head, l.entries_before, l.entries_after, l.bits,"
      " l.merged, l.reads, l.attention_error, l.kept_by_depth, l.answer_kept FROM layer_stat l"
      " JOIN sample s ON s.id = l.sample_id JOIN cell c ON c.id = s.cell_id ORDER BY c.key, "
      "s.sample_key, l.layer, l.head",
      "SELECT c.key, s.sample_key, l.layer, l.modality, l.entries_before, l.entries_after, l.bytes,"
      " l.attention, l.attention_kept FROM modality_stat l"
      " JOIN sample s ON s.id = l.sample_id JOIN cell c ON c.id = s.cell_id ORDER BY c.key, "
      "s.sample_key, l.layer, l.modality",
      "SELECT c.key, s.sample_key, y.moment, y.nominal_bytes, y.full_bytes, y.payload_bytes,"
      " y.scales_bytes, y.indices_bytes, y.outliers_bytes, y.low_rank_bytes, y.biases_bytes,"
      " y.codebooks_bytes, y.projections_bytes, y.reader_bytes, y.slack_bytes, y.resident_bytes,"
      " y.host_bytes"
      " FROM memory y JOIN sample s ON s.id = y.sample_id JOIN cell c ON c.id = s.cell_id"
      " ORDER BY c.key, s.sample_key, y.moment",
  };
  return kQueries;
}

}  // namespace kvgauge
