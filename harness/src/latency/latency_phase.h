// SPDX-License-Identifier: Apache-2.0
// The latency phase: what a method costs in time and memory when it runs alone.
//
// One row at a time, each with a prefill of its own. A round is the full cache and at most four
// other rows on one prompt, measured next to each other; they share a number in the record, and
// ratios are taken within a round. Every row runs once, unrecorded, before its first round at a
// length. A measurement beside which other programs had too much of the machine is repeated a few
// times; it is judged by that alone, never by its own speed, and the last one is kept with its
// share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "methods/method.h"
#include "reports/store.h"
#include "reports/store_rows.h"
#include "runner/compressor.h"
#include "runner/engine.h"
#include "runner/model.h"
#include "runner/vision.h"

namespace kvgauge {

struct LatencyOptions {
  std::vector<int64_t> contexts = {};  // prompt lengths in tokens
  int64_t decode_steps = 32;           // after the first token
  int64_t repetitions = 5;
  bool pin_threads = false;       // each compute thread to a processor of its own
  double max_others_share = 0.1;  // of the processors, used by other programs
  int64_t most_retries = 2;       // of a measurement that was disturbed
  // Not of the configuration's section: bound on the memory of the models and one row (0: none),
  // how many of a prompt's last tokens are fed after compression (compress_at context), and the
  // most tokens of a chunk (compress_at chunk; 0: prompts are read whole).
  int64_t max_memory_bytes = 0;
  int64_t question_tokens = 0;
  int64_t chunk_tokens = 0;
};
// {"contexts": [1024, 4096], "decode_steps": 32, "repetitions": 5, "pin_threads": false,
// "max_others_share": 0.1, "most_retries": 2}; only "contexts" must be there. An unknown key, a
// wrong type or a number out of range is an error that names it.
Result<LatencyOptions> ParseLatencyOptions(const Json& json, const std::string& where);
Json ToJson(const LatencyOptions& options);  // canonical, every key

struct LatencyLine {
  std::string name = {};  // in messages: "snapkv 20%"
  const Method* method = nullptr;
  Budget budget = {};
  Model* model = nullptr;  // as for Contender
  bool full_cache = false;
  int64_t cell = 0;  // of the store; without a store it is not looked at
  // Which of LatencyTokens::left it reads: those that its method's See stage leaves.
  std::optional<size_t> see = {};
};

// One picture of a sample's visuals.
struct LatencyPicture {
  int64_t rows = 0;
  // What each See stage of the phase leaves of it, and the tower's time for that.
  struct Left {
    std::shared_ptr<const VisualFeatures> features;
    double vision_s = 0;
  };
  std::vector<Left> left = {};
};

// A prompt: tokens, and the pictures among them.
struct LatencyTokens {
  std::vector<int32_t> ids = {};
  std::vector<VisualSpan> spans = {};  // ascending; their rows are those of `visuals`
  std::shared_ptr<const SampleVisuals> visuals = nullptr;
  double vision_s = 0;  // of the tower on these pictures
  // The pictures of a sample in the order of their rows, where See stages are measured.
  std::vector<LatencyPicture> pictures = {};
  // What each See stage leaves of a prompt. Empty: they leave it as it is.
  std::vector<std::shared_ptr<const LatencyTokens>> left = {};
  // Where each token of the whole prompt is in what a stage left, and the end.
  std::vector<int64_t> now = {};

  LatencyTokens() = default;
  LatencyTokens(std::vector<int32_t> text) : ids(std::move(text)) {}  // NOLINT: text is a prompt
  int64_t size() const { return std::ssize(ids); }
};
// A prompt of exactly that length. Rounds of one length may differ.
using LatencyPrompt = std::function<Result<LatencyTokens>(int64_t tokens, int64_t round)>;
// Ids drawn below `vocab_size`.
LatencyPrompt SeededPrompts(int64_t vocab_size, uint64_t seed);
// From a task's samples: round r takes sample r modulo their number. What is too long loses its
// middle; what is too short is continued by the next samples. A picture is there whole or not at
// all; where one does not fit, text of the samples takes its place. `samples` is not empty, and
// none of them is.
LatencyPrompt SamplePrompts(std::vector<LatencyTokens> samples);

// One row, alone, now: its own prefill, its compression, the first token, `decode_steps` more, all
// greedy and past any stop. The caches lie in pools that are made and given up here.
//
// Time to the first token runs from before the cache is made until the token is chosen, compression
// included. The parts of the time add up to all of it; what no stage, no attention of a decode step
// and no prefill took is `other`. `resident_bytes` is what the pools hold at the end, with the
// reader's index; `peak_bytes` the most they held, with the captures of the prefill. The last
// `question_tokens` of the prompt come after compression, and count as time to the first token; a
// picture that lies over their beginning stays before it.
struct LatencyMeasurement {
  LatencyRow row;
  std::vector<int32_t> ids;  // the first token and those of the steps
  CompressionRecord record;
};
// `processors`: on which other programs' use counts, as ReadCpuUse takes them. With `chunk_tokens`
// what reduces prompts reads them in chunks; what it takes to reduce those is no part of prefill_s.
Result<LatencyMeasurement> MeasureAlone(const LatencyLine& line, const LatencyTokens& prompt,
                                        int64_t decode_steps, std::span<const int> processors,
                                        int64_t question_tokens = 0, int64_t chunk_tokens = 0);

struct LatencyEvent {
  const LatencyLine* line = nullptr;
  int64_t context_tokens = 0;
  int64_t done = 0, planned = 0;  // measurements, this one included
  Status status;                  // an error: the row is left out at that length
  LatencyRow row;                 // when ok
};

struct LatencyHooks {
  std::function<void(const LatencyEvent&)> on_event = {};
  // Asked before every measurement; true ends the phase after what is recorded.
  std::function<bool()> cancelled = {};
};

struct LatencyOutcome {
  int64_t measured = 0;   // rows recorded
  int64_t had = 0;        // repetitions that were there already
  int64_t disturbed = 0;  // of the measured: other programs had more than max_others_share
  int64_t failed = 0;     // (row, length) left out
  bool cancelled = false;
};

// Measurements of one length to come, with the full cache's of every round: `missing` are the
// repetitions that each line lacks, `full` is the line of the full cache.
int64_t PlannedMeasurements(const std::vector<int64_t>& missing, size_t full);

struct LatencyRound {
  std::vector<size_t> lines;  // indices; the full cache first
  std::vector<LatencyRow> rows;
};
// What is there already of a line at a length.
struct LatencyRecorded {
  int64_t repetitions = 0;
  int64_t next_round = 0;  // the first number that is free in this run
};
// Lines of one model, or of several that know the prompts' ids; exactly one of them is the full
// cache that the others are compared with, else an error. `sink` takes each finished round; its
// error ends the phase.
Result<LatencyOutcome> MeasureLatency(
    const std::vector<LatencyLine>& lines, const LatencyPrompt& prompt,
    const LatencyOptions& options, const LatencyHooks& hooks,
    const std::function<Result<LatencyRecorded>(size_t line, int64_t context_tokens)>& recorded,
    const std::function<Status(const LatencyRound&)>& sink);

// The same into a store: only repetitions that are not there are run, under `run`, whichever run
// recorded the others. Precondition: the cells and the run are of `store`.
Result<LatencyOutcome> RecordLatency(const std::vector<LatencyLine>& lines,
                                     const LatencyPrompt& prompt, const LatencyOptions& options,
                                     const LatencyHooks& hooks, ResultStore& store, int64_t run);

}  // namespace kvgauge
