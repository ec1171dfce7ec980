-- A result store of schema version 3, as that version wrote it. Never edited: it stands for the files
-- on people's disks.
PRAGMA journal_mode = WAL;
PRAGMA application_id = 1263945555;
PRAGMA user_version = 3;
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
ALTER TABLE sample ADD COLUMN kl_divergence REAL;
ALTER TABLE sample ADD COLUMN top1_agreement REAL;
ALTER TABLE layer_stat ADD COLUMN attention_error REAL;
INSERT INTO machine VALUES (1, 'm', '{"cores":2}');
INSERT INTO run VALUES (1, 'r1', 1, 'kvgauge run quickstart.json', '{"seeds":[0]}', '0.1.0', 'abc', '2026-01-02T03:04:05Z', NULL);
INSERT INTO model VALUES (1, 'f00d', 'ref-gqa', '{}');
INSERT INTO method VALUES (1, 'k', 'snapkv', '', 'SnapKV', 'selection', 1, '{}', 0);
INSERT INTO task VALUES (1, 'k', 'needle/single', 1, '{}');
INSERT INTO signature VALUES (1, '015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862', '{"a":1}');
INSERT INTO cell VALUES (1, 'db65ec1317a1ef286e061af7dd0ad6d1c1a0da0e18fe7a649e1cc98fff97fb2a', '{"cell":1}', 1, 1, 1, 1, '20%', 'fraction', 0.2, 'prompt', 0);
INSERT INTO sample VALUES (1, 1, 1, 's0', 'h0', 'g0', 0, 'ok', '', 0.5, 1000, 7, 'engaged', '', 1, 1600, 8000, 0.25, 0.875);
INSERT INTO sample VALUES (2, 1, 1, 's1', 'h1', 'g0', 1, 'failed', 'out of memory', NULL, 2000, 0, 'none', '', 0, NULL, NULL, NULL, NULL);
INSERT INTO answer VALUES (1, 0, 'It is 7.', '["7"]', 0.5, 7, 1);
INSERT INTO layer_stat VALUES (1, 0, 0, 1000, 200, 16.0, 0, 180.5, 0.125);
INSERT INTO layer_stat VALUES (1, 0, 1, 1000, 199, NULL, NULL, NULL, NULL);
INSERT INTO memory (sample_id, moment, nominal_bytes, full_bytes, payload_bytes, scales_bytes, indices_bytes, outliers_bytes, low_rank_bytes, biases_bytes, codebooks_bytes, projections_bytes, reader_bytes, slack_bytes, resident_bytes, peak_bytes) VALUES (1, 'compressed', 1600, 8000, 1500, 10, 20, 30, 40, 0, 0, 0, 0, 5, 1605, 9000);
INSERT INTO latency VALUES (1, 1, 1, NULL, 1, 1000, 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.01, 0.02, 0.03, 64, 1605, 9000, 0.0);
INSERT INTO event VALUES (1, 1, 0, '2026-01-02T03:04:06Z', 'started', 'one cell');
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
CREATE VIEW result AS SELECT sample_key FROM sample;
CREATE VIEW cell_stat AS SELECT cell_id, avg(score) AS mean_score FROM sample GROUP BY cell_id;
CREATE VIEW leaderboard AS SELECT * FROM cell_stat;
