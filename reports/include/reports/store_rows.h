// SPDX-License-Identifier: Apache-2.0
// The rows of a result store: plain values, as they are written and as they are read back.
//
// docs/formats/store.md says what each column means. Texts named `spec`, `facts`, `config`,
// `identity` and `signature` are canonical JSON (core/json.h). Words stored in files: do not change
// the spelling of an enumerator's name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvgauge {

struct MachineRow {
  std::string facts;
};

struct RunRow {
  std::string key;  // unique among all runs anywhere, chosen by the caller
  MachineRow machine;
  std::string command;
  std::string config;
  std::string version;   // of the program
  std::string revision;  // of its source
  std::string started_at;
  std::string finished_at;  // "": interrupted, or still running
};

struct ModelRow {
  std::string fingerprint;  // of config and weights
  std::string name;
  std::string facts;
};

struct MethodRow {
  std::string name;
  std::string variant;  // what differs from the method's file: "score.window=16"; "" for nothing
  std::string title;
  std::string family;
  int64_t version = 1;
  std::string spec;
  bool full_cache = false;    // the reference that others are paired with
  bool experimental = false;  // nothing independent holds it; no part of its key
};

struct TaskRow {
  std::string name;
  int64_t version = 1;
  std::string spec;
  bool lower_is_better = false;  // its metric's direction; differences are then shares of the lower
};

// One point of the plan: model x task x method x budget x seed.
struct CellRow {
  std::string identity;   // everything that can move a number; its SHA-256 is the cell's key
  std::string signature;  // everything besides method, budget and seed that can move a score
  ModelRow model;
  MethodRow method;
  TaskRow task;
  std::string budget = "none";       // "20%", "512", "64B", "none"
  std::string budget_kind = "none";  // none, entries, fraction, bytes_per_token
  double budget_value = 0;
  std::string compress_at = "prompt";  // prompt, context, turn
  int64_t seed = 0;

  std::string Key() const;
};

enum class SampleStatus { kOk, kFailed, kSkipped };
// What the method did to the sample. kNone: the sample ended before.
enum class EngagementMark { kNone, kEngaged, kNotEngaged, kIdentity };
enum class MemoryMoment { kCompressed, kFinal };

std::string_view NameOf(SampleStatus status);
std::string_view NameOf(EngagementMark mark);
std::string_view NameOf(MemoryMoment moment);

struct AnswerRow {
  std::string question = {};  // the question; the whole prompt can be built again from the task
  std::string excerpt = {};   // of the context, around the place where the answer stands
  std::string prediction;
  std::vector<std::string> references;
  std::optional<double> score;  // none if only a judge can score
  int64_t tokens_out = 0;
  bool stopped = false;  // by itself, not by the limit

  bool operator==(const AnswerRow&) const = default;
};

// What one layer and KV head kept. Values that were not measured are left out.
struct LayerStatRow {
  static constexpr int64_t kWholeLayer = -1;  // as `head`: known of the layer, not of its heads
  static constexpr int64_t kDepths = 32;      // equal parts of a context

  int64_t layer = 0;
  int64_t head = 0;
  std::optional<int64_t> entries_before = {}, entries_after = {};
  std::optional<double> bits = {};             // of one stored number, payload only
  std::optional<int64_t> merged = {};          // entries folded into others
  std::optional<double> reads = {};            // entries attended over in a decode step, mean
  std::optional<double> attention_error = {};  // relative, against the full cache
  // For the whole layer, means over its KV heads. Share of the context's entries held, for each of
  // kDepths parts; empty: unknown. A merged entry has the place of the first of its entries.
  std::vector<double> kept_by_depth = {};
  std::optional<double> answer_kept = {};  // share of the answer's tokens in the context

  bool operator==(const LayerStatRow&) const = default;
};

// One modality in one layer, all KV heads together. Prompts with pictures have these rows.
struct ModalityStatRow {
  int64_t layer = 0;
  std::string modality = "text";  // text, image, video
  int64_t entries_before = 0, entries_after = 0;
  int64_t bytes = 0;          // the layer's after compression, by this modality's share of entries
  double attention = 0;       // share of the last prompt row's, mean over query heads
  double attention_kept = 0;  // what of it goes to entries that are still held

  bool operator==(const ModalityStatRow&) const = default;
};

// What a model's tower saw of a picture, for people to look at.
struct PictureRow {
  std::string key;                // SHA-256 of the picture's content and of the part that was seen
  int64_t width = 0, height = 0;  // of that part, in the picture's own pixels
  std::string thumbnail;          // a JPEG file; no result: libraries write different ones
};

// A picture of a prompt, or a frame of a video.
struct ShownPicture {
  // Rows of the prompt, row by row over the whole part that was seen. A picture that is cut into
  // tiles has two: itself, and all tiles together.
  struct Grid {
    int64_t rows = 0, columns = 0;

    bool operator==(const Grid&) const = default;
  };
  std::string name;     // the data set's
  int64_t frame = -1;   // of its video; -1: a picture of its own
  bool answer = false;  // the answer stands in it
  std::vector<Grid> grids;
  std::shared_ptr<const PictureRow> picture;
};

// What the prompt of a sample shows, for all cells that see it alike.
struct SightRow {
  std::vector<ShownPicture> pictures;  // in the order of the prompt

  int64_t cells() const;  // of all grids
  // Everything but thumbnails, as canonical JSON.
  std::string Spec() const;
};

// The digits of each grid of each picture; nothing where `patches` are not known.
std::vector<std::vector<std::string>> SplitPatches(const SightRow& sight,
                                                   const std::string& patches);
// The mean share of some digits; 0 for none.
double MeanShare(const std::vector<std::string>& digits);

// The digit for a share of heads and layers: '0' is none, 'f' is all, and nothing else is either.
char PatchDigit(double share);
// The share that a digit stands for; 0 for what is none.
double PatchShare(char digit);

// Bytes of one sequence as if it were alone.
struct MemoryRow {
  MemoryMoment moment = MemoryMoment::kCompressed;
  int64_t nominal_bytes = 0;  // what the budget promises
  int64_t full_bytes = 0;     // the same tokens uncompressed
  int64_t payload_bytes = 0, scales_bytes = 0, indices_bytes = 0, outliers_bytes = 0,
          low_rank_bytes = 0, biases_bytes = 0, codebooks_bytes = 0, projections_bytes = 0,
          reader_bytes = 0, slack_bytes = 0;
  int64_t resident_bytes = 0;  // what the allocator holds
  int64_t peak_bytes = 0;      // while compressing; not a result column: it depends on company
  // The part of logical_bytes that a method's placement puts on the host.
  int64_t host_bytes = 0;

  int64_t logical_bytes() const {
    return payload_bytes + scales_bytes + indices_bytes + outliers_bytes + low_rank_bytes +
           biases_bytes + codebooks_bytes + projections_bytes + reader_bytes;
  }
  bool operator==(const MemoryRow&) const = default;
  bool SameResult(const MemoryRow& other) const;
};

// Where time went, in seconds. Never a result column.
struct LatencyRow {
  // Isolated repetitions are left out if other programs used more of the machine than this.
  static constexpr double kMaxOthersShare = 0.2;
  // Fewer undisturbed repetitions make no interval.
  static constexpr int64_t kLeastRepetitions = 3;

  std::string run_key;   // filled when read
  bool isolated = true;  // measured alone; false: shared with the samples run beside it
  int64_t context_tokens = 0;
  int64_t repetition = 0;  // of a run; neighbours of one number were measured interleaved
  double prefill_s = 0, score_s = 0, select_s = 0, compact_s = 0, quantise_s = 0, attend_s = 0,
         other_s = 0;
  // The vision tower and its projector on the prompt's pictures, whoever they were shared with.
  // Not in ttft_s, as rows share it.
  double vision_s = 0;
  double ttft_s = 0;                                      // time to first token
  double tpot_p50_s = 0, tpot_p90_s = 0, tpot_p99_s = 0;  // time per output token
  int64_t steps = 0;
  int64_t resident_bytes = 0, peak_bytes = 0;
  double others_share = 0;  // of the machine's processors, used by other programs meanwhile
};

struct SampleRow {
  int64_t cell = 0;  // as AddCell gave it
  int64_t run = 0;   // as AddRun gave it
  std::string sample_id;
  std::string hash;      // of the sample's content
  std::string group;     // samples of one context share it; statistics cluster by it
  int64_t position = 0;  // in the plan; readers go by it
  SampleStatus status = SampleStatus::kOk;
  std::string reason;  // of a status that is not ok
  std::optional<double> score;
  int64_t tokens_in = 0, tokens_out = 0;
  // What the sample shows: pictures, frames of videos, and how many of tokens_in are theirs.
  int64_t images = 0, frames = 0, visual_tokens = 0;
  EngagementMark engagement = EngagementMark::kNone;
  std::string engagement_reason;
  int64_t compressions = 0;
  std::optional<double> kl_divergence, top1_agreement;  // teacher-forced, against the full cache
  std::string facts = "{}";            // what the data set says of the sample, an object of texts
  std::optional<double> answer_depth;  // where its answer stands in the context, from 0 to 1
  std::optional<double> reads_per_step, read_share;  // entries attended over, of those held
  std::optional<double> fetched_per_step;            // bytes, where entries lie on the host
  // If the score of a set is not a mean: this sample's contribution to its sums
  // (MetricSpec::parts).
  std::vector<double> parts;
  std::vector<AnswerRow> answers;  // one a turn
  std::vector<LayerStatRow> layers;
  std::vector<ModalityStatRow> modalities;
  // Null: the sample shows nothing, or it is not known what.
  std::shared_ptr<const SightRow> sight;
  // For each cell of the sight's grids in order a PatchDigit: the share of heads and layers that
  // held its entry at the end of the sample. One digit stands for all cells; "": not known.
  std::string patches;
  std::vector<MemoryRow> memory;
  std::optional<LatencyRow> latency;

  // Equal in every result column: what a second run of the same sample must reproduce.
  bool SameResult(const SampleRow& other) const;
};

// A method that served the requests of a workload in a memory, once: `kvgauge bench capacity`.
struct CapacityRow {
  std::string identity;  // everything that can move a number, but the machine
  ModelRow model;
  MethodRow method;
  std::string budget = "none", budget_kind = "none";
  double budget_value = 0;
  std::string workload;           // who asked for what, and when
  std::string policy;             // who was served when
  int64_t batch = 0;              // the most sequences of a pass, as asked for; 0: as many as fit
  int64_t memory_bytes = 0;       // for weights, working memory and caches; 0: no limit
  int64_t host_memory_bytes = 0;  // for caches that wait on the host; 0: no limit
  int64_t repetition = 0;
  std::string run_key;        // filled in when it is read
  std::string machine_facts;  // the same
  std::string refused;        // why nothing ran; "": it did. The rest is then 0

  int64_t max_batch = 0;  // of a pass
  int64_t requests = 0, served = 0, failed = 0;
  std::string failure;         // of the first that failed
  int64_t held = 0;            // sequences with a cache at once, the most
  std::optional<int64_t> fit;  // that are planned to fit at once; nothing without a limit
  int64_t decoding = 0;        // sequences of a pass, the most
  int64_t tokens_in = 0, tokens_out = 0;  // of those served
  double seconds = 0, busy_s = 0;         // with somebody to serve, and in passes
  double tokens_per_s = 0;                // of answers
  double ttft_p50_s = 0, ttft_p90_s = 0, ttft_p99_s = 0;
  double tpot_p50_s = 0, tpot_p90_s = 0, tpot_p99_s = 0;
  double e2e_p50_s = 0, e2e_p90_s = 0, e2e_p99_s = 0;
  int64_t passes = 0, prompt_rows = 0, preemptions = 0, shared_tokens = 0, replayed_tokens = 0;
  int64_t weight_bytes = 0, working_bytes = 0;
  int64_t planned_bytes = 0, peak_bytes = 0;  // of caches, the most at once
  int64_t sequence_bytes = 0;                 // at its end, mean
  int64_t host_bytes = 0;
  int64_t not_engaged = 0;
  std::string not_engaged_because;
  std::string answers_key;  // SHA-256 of all answers; "" where a request failed
  double others_share = 0;

  std::string Key() const;
};

// One answer to one prompt, drafted by a method's cache and checked by the full cache, and the full
// cache's own beside it: `kvgauge bench speculate`.
struct SpeculationRow {
  std::string identity;  // everything that can move a number, but the machine
  ModelRow model;
  MethodRow method;  // the draft
  std::string budget = "none", budget_kind = "none";
  double budget_value = 0;
  std::string form;      // published, with what was changed of it; "": none
  std::string workload;  // the prompts, and how long answers are
  int64_t gamma = 0;     // tokens drafted for a check, at most
  int64_t prompt = 0;    // which of the workload's, from 0
  int64_t repetition = 0;
  std::string run_key;        // filled in when it is read
  std::string machine_facts;  // the same

  int64_t prompt_tokens = 0, answer_tokens = 0;
  int64_t checks = 0;  // passes of the full cache
  int64_t draft_steps = 0, drafted = 0, accepted = 0;
  std::vector<int64_t> drafted_at, accepted_at;  // [gamma] as the first, second ... of a check
  double draft_s = 0, check_s = 0, other_s = 0;
  double full_s = 0;                         // the full cache alone
  int64_t draft_bytes = 0, judge_bytes = 0;  // behind the prompt, each as if alone
  int64_t held_bytes = 0;                    // of both; shared entries count once
  bool not_engaged = false;
  std::string not_engaged_because;
  std::string answer_key;  // SHA-256 of the answer's tokens
  double others_share = 0;

  std::string Key() const;
  double seconds() const { return draft_s + check_s + other_s; }
  // The first token is the prompt's.
  double tokens_per_s() const { return Rate(seconds()); }
  double full_tokens_per_s() const { return Rate(full_s); }

 private:
  double Rate(double s) const { return s > 0 ? static_cast<double>(answer_tokens - 1) / s : 0; }
};

struct EventRow {
  std::string at;
  std::string kind;  // started, resumed, interrupted, failed, finished, note
  std::string message;
};

// "bf16", "f32, products by rows of file": what a model computes with, as the identity of a
// capacity or a speculation has it; "": it does not say.
std::string NumbersOfIdentity(const std::string& identity);

}  // namespace kvgauge
