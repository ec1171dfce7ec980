-- A result store of schema version 11, as that version wrote it. Never edited: it stands for the files
-- on people's disks.
PRAGMA journal_mode = WAL;
PRAGMA application_id = 1263945555;
PRAGMA user_version = 11;
BEGIN TRANSACTION;
CREATE TABLE answer (
  sample_id INTEGER NOT NULL REFERENCES sample ON DELETE CASCADE,
  turn INTEGER NOT NULL CHECK (turn >= 0),
  prediction TEXT NOT NULL,
  answers TEXT NOT NULL,
  score REAL,
  tokens_out INTEGER NOT NULL,
  stopped INTEGER NOT NULL CHECK (stopped IN (0, 1)), question_id INTEGER REFERENCES question,
  PRIMARY KEY (sample_id, turn)
) STRICT, WITHOUT ROWID;
INSERT INTO "answer" VALUES(1,0,'It is 7.','["7"]',0.5,7,1,NULL);
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
INSERT INTO "capacity" VALUES(1,'k','{"capacity":1}',1,1,1,'20%','fraction',0.2,'{"requests":2}','fcfs',0,1048576,NULL,0,'',2,2,2,0,'',2,3,2,100,10,1.5,1.25,6.5,0.1,0.2,0.3,0.01,0.02,0.03,1.0,1.1,1.2,9,100,0,0,0,4096,512,2048,2048,1024,0,0,'','a',0.0);
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
  seed INTEGER NOT NULL
, compress_at TEXT NOT NULL DEFAULT 'prompt'
  CHECK (compress_at IN ('prompt', 'context', 'turn') OR compress_at GLOB 'chunk [1-9]*')) STRICT;
INSERT INTO "cell" VALUES(1,'db65ec1317a1ef286e061af7dd0ad6d1c1a0da0e18fe7a649e1cc98fff97fb2a','{"cell":1}',1,1,1,1,'20%','fraction',0.2,0,'prompt');
CREATE TABLE event (
  id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run,
  ordinal INTEGER NOT NULL,
  at TEXT NOT NULL,
  kind TEXT NOT NULL,
  message TEXT NOT NULL,
  UNIQUE (run_id, ordinal)
) STRICT;
INSERT INTO "event" VALUES(1,1,0,'2026-01-02T03:04:06Z','started','one cell');
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
, vision_s REAL NOT NULL DEFAULT 0) STRICT;
INSERT INTO "latency" VALUES(1,1,1,NULL,1,1000,0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.01,0.02,0.03,64,1605,9000,0.0,0.0);
CREATE TABLE layer_stat (
  sample_id INTEGER NOT NULL REFERENCES sample ON DELETE CASCADE,
  layer INTEGER NOT NULL CHECK (layer >= 0),
  head INTEGER NOT NULL CHECK (head >= -1),
  entries_before INTEGER,
  entries_after INTEGER,
  bits REAL,
  merged INTEGER,
  reads REAL, attention_error REAL, kept_by_depth TEXT, answer_kept REAL,
  PRIMARY KEY (sample_id, layer, head)
) STRICT, WITHOUT ROWID;
INSERT INTO "layer_stat" VALUES(1,0,0,1000,200,16.0,0,180.5,0.125,NULL,NULL);
INSERT INTO "layer_stat" VALUES(1,0,1,1000,199,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE machine (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  facts TEXT NOT NULL
) STRICT;
INSERT INTO "machine" VALUES(1,'6c7c23e964e03206a64b65f1f4b253c6e120620e5b1eaba1ba694265e36df18b','{"cores":2}');
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
INSERT INTO "memory" VALUES(1,'compressed',1600,8000,1500,10,20,30,40,0,0,0,0,5,1605,9000);
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
, experimental INTEGER NOT NULL DEFAULT 0
  CHECK (experimental IN (0, 1))) STRICT;
INSERT INTO "method" VALUES(1,'e7575dec6c8e935f041eb8d1d8a8d7c1a27defbdbfa9fb4ecdef4cd6208d6fa2','snapkv','','SnapKV','selection',1,'{}',0,0);
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
CREATE TABLE model (
  id INTEGER PRIMARY KEY,
  fingerprint TEXT NOT NULL,
  name TEXT NOT NULL,
  facts TEXT NOT NULL,
  UNIQUE (fingerprint, name)
) STRICT;
INSERT INTO "model" VALUES(1,'f00d','ref-gqa','{}');
CREATE TABLE picture (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  width INTEGER NOT NULL,
  height INTEGER NOT NULL,
  thumbnail BLOB NOT NULL
) STRICT;
CREATE TABLE question (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  text TEXT NOT NULL,
  excerpt TEXT NOT NULL
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
INSERT INTO "run" VALUES(1,'r1',1,'kvgauge run quickstart.json','{"seeds":[0]}','0.1.0','abc','2026-01-02T03:04:05Z',NULL);
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
  full_bytes INTEGER, kl_divergence REAL, top1_agreement REAL, facts TEXT NOT NULL DEFAULT '{}', answer_depth REAL, reads_per_step REAL, read_share REAL, parts TEXT, images INTEGER NOT NULL DEFAULT 0, frames INTEGER NOT NULL DEFAULT 0, visual_tokens INTEGER NOT NULL DEFAULT 0, sight_id INTEGER REFERENCES sight, patches TEXT,
  UNIQUE (cell_id, sample_key)
) STRICT;
INSERT INTO "sample" VALUES(1,1,1,'s0','h0','g0',0,'ok','',0.5,1000,7,'engaged','',1,1600,8000,0.25,0.875,'{}',NULL,NULL,NULL,NULL,0,0,0,NULL,NULL);
INSERT INTO "sample" VALUES(2,1,1,'s1','h1','g0',1,'failed','out of memory',NULL,2000,0,'none','',0,NULL,NULL,NULL,NULL,'{}',NULL,NULL,NULL,NULL,0,0,0,NULL,NULL);
CREATE TABLE sight (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  spec TEXT NOT NULL
) STRICT;
CREATE TABLE signature (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  protocol TEXT NOT NULL
) STRICT;
INSERT INTO "signature" VALUES(1,'015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862','{"a":1}');
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
CREATE TABLE task (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  version INTEGER NOT NULL,
  spec TEXT NOT NULL
, lower_is_better INTEGER NOT NULL DEFAULT 0
  CHECK (lower_is_better IN (0, 1))) STRICT;
INSERT INTO "task" VALUES(1,'b3f4f03a3029e7bfdc5e811c0f65868e24d2822c55831d66d182c3c3a1760159','needle/single',1,'{}',0);
CREATE UNIQUE INDEX latency_isolated ON latency (cell_id, run_id, context_tokens, repetition)
  WHERE sample_id IS NULL;
CREATE UNIQUE INDEX latency_sample ON latency (sample_id) WHERE sample_id IS NOT NULL;
CREATE INDEX sample_rank
  ON sample (cell_id, status, engagement, score, logical_bytes, full_bytes, tokens_in);
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
COMMIT;
