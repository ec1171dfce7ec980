// SPDX-License-Identifier: Apache-2.0
// The result store: one SQLite file that holds runs and their results.
//
// Recording is append-only. A sample with everything that belongs to it is one transaction: killed
// at any moment, the file holds it whole or not at all. One process writes at a time, any number
// read meanwhile. docs/formats/store.md describes the tables for people with `sqlite3`.
//
// Every error names the file and leaves all records unchanged. After a failed write the store
// remains usable, for instance when the disk has space again. An object is for one thread at a
// time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "reports/store_rows.h"

namespace kvgauge {

enum class StoreMode {
  kReadOnly,   // an older schema is read through an upgraded temporary copy; the file is untouched
  kReadWrite,  // the file must exist; an older schema is upgraded in place
  kCreate,     // as kReadWrite, and makes the file where there is none
  kShared,     // beside others, for workers of the process that has opened the file for writing
};

// The outcome for a sample that is already recorded.
enum class WriteOutcome {
  kNew,
  kKept,      // equal in every result column, or the new one is no success: the old record stays
  kReplaced,  // the old record was no success and the new one is
};

struct StoredRun {
  int64_t id = 0;
  RunRow run;
};

struct StoredCell {
  int64_t id = 0;
  std::string signature_key;  // SHA-256 of the signature
  CellRow cell;
};

// The fields of a sample that statistics need.
struct ScoreRow {
  std::string sample_id;
  std::string group;
  std::string hash;
  SampleStatus status = SampleStatus::kOk;
  std::string reason;  // of a status that is not ok
  EngagementMark engagement = EngagementMark::kNone;
  std::optional<double> score;
  std::vector<double> parts;  // where the score of a set is no mean
  int64_t tokens_in = 0;
  std::optional<int64_t> logical_bytes, resident_bytes, full_bytes;  // after compression
  std::string answers_key;  // SHA-256 over the predictions of all turns
};

// The fields of all samples of a file that tables need, compact: a million samples take 150 MB.
struct SampleTable {
  struct Item {
    std::string sample_id, group, hash;
  };
  struct Row {
    int64_t cell = 0;
    int64_t position = 0;
    uint32_t item = 0;    // the same number for the same sample, group and content
    uint32_t reason = 0;  // 0 where it is ok
    SampleStatus status = SampleStatus::kOk;
    EngagementMark engagement = EngagementMark::kNone;
    // NaN: there is none.
    double score = 0, kl_divergence = 0, top1_agreement = 0, read_share = 0, fetched_per_step = 0;
    int64_t tokens_in = 0, tokens_out = 0;
    // After compression; -1: not measured.
    int64_t nominal_bytes = -1, logical_bytes = -1, resident_bytes = -1, full_bytes = -1;
    int64_t host_bytes = 0;  // of the logical ones
    // Where the score of a set is no mean: in `parts`, so many from there.
    uint32_t part_count = 0;
    size_t parts_at = 0;
  };
  std::vector<Item> items;
  std::vector<std::string> reasons;
  std::vector<Row> rows;  // by cell, then position, then sample
  std::vector<double> parts;
};

struct LeaderboardRow {
  std::string model, task, method, variant, family, budget, compress_at, signature;
  int64_t seeds = 0, samples = 0, ok = 0, failed = 0, skipped = 0, not_engaged = 0;
  std::optional<double> mean_score;
  std::optional<double> byte_ratio;       // logical over full cache
  std::optional<double> bytes_per_token;  // logical, per token of the prompt
  std::optional<int64_t> rank;            // within model, task, compress_at and signature; nothing
                                          // where a sample was not engaged
};

namespace report {
class Queries;
}

struct MergeReport {
  int64_t cells = 0;                          // of the source
  int64_t added = 0, kept = 0, replaced = 0;  // samples
  int64_t capacity = 0, speculation = 0;      // rows that are new
};

class ResultStore {
 public:
  // Opening for writing checks the whole file (SQLite's quick_check); opening for reading does not,
  // and damage is reported when it is met.
  static Result<std::unique_ptr<ResultStore>> Open(const std::string& path, StoreMode mode);
  ~ResultStore();
  ResultStore(const ResultStore&) = delete;
  ResultStore& operator=(const ResultStore&) = delete;

  // Ids are local to this file. Adding the same row again returns the same id.
  Result<int64_t> AddRun(const RunRow& run);
  Status FinishRun(int64_t run, const std::string& finished_at);
  Status AddEvent(int64_t run, const EventRow& event);
  // Refuses a cell whose key is recorded under another signature.
  Result<int64_t> AddCell(const CellRow& cell);

  // The ids, in the given order, that are not recorded; with `retry` also those that failed or were
  // skipped.
  Result<std::vector<std::string>> Pending(int64_t cell, std::span<const std::string> sample_ids,
                                           bool retry = false);
  // The status of a recorded sample and the hash of its content, or nothing.
  struct Recorded {
    SampleStatus status = SampleStatus::kOk;
    std::string hash;
  };
  Result<std::optional<Recorded>> FindSample(int64_t cell, const std::string& sample_id);
  // How many samples are recorded of each cell; cells without any are left out.
  Result<std::map<int64_t, int64_t>> SampleCounts();
  // One transaction. Refuses a success that differs from the recorded success in a result column,
  // and numbers that are not finite. Texts are stored as well-formed UTF-8.
  Result<WriteOutcome> Write(const SampleRow& sample);
  // The same for several samples in one transaction: all of them or none.
  Result<std::vector<WriteOutcome>> WriteAll(std::span<const SampleRow> samples);
  // Isolated repetitions of a cell, one transaction; those of the same run, length and number stay.
  Status WriteLatency(int64_t cell, int64_t run, std::span<const LatencyRow> rows);
  // One transaction. A row of the same run, identity and repetition stays; numbers that are not
  // finite are refused.
  Status WriteCapacity(int64_t run, const CapacityRow& row);
  Status WriteSpeculation(int64_t run, const SpeculationRow& row);  // the same

  // Copies everything from `source` that is missing here, in one transaction: runs, cells, samples
  // by the rule of Write, latencies, capacities, speculations, events. Repeating it changes
  // nothing. A conflict refuses the whole copy; a row (model, task, method, variant, budget,
  // compress_at) without a common signature is a conflict.
  Result<MergeReport> Merge(ResultStore& source);
  // The same for several sources in their order, in one transaction: all of them or none.
  Result<std::vector<MergeReport>> MergeAll(std::span<ResultStore* const> sources);

  Result<std::vector<StoredRun>> Runs();  // in the order of insertion
  Result<std::vector<EventRow>> Events(int64_t run);
  Result<std::vector<StoredCell>> Cells();             // by model, task, method, budget, seed
  Result<std::vector<ScoreRow>> Scores(int64_t cell);  // by position
  Result<SampleTable> Samples();                       // of all cells
  // `run` of what is read is an id of this file.
  Result<std::optional<SampleRow>> Read(int64_t cell, const std::string& sample_id);
  Result<std::vector<LatencyRow>> Latency(int64_t cell);  // isolated, by run, length, repetition
  Result<std::vector<CapacityRow>> Capacities();          // in the order of insertion
  Result<std::vector<SpeculationRow>> Speculations();     // the same
  // Every isolated latency, and about `most_shared` of those of samples, taken evenly; in no order.
  using LatencyVisitor = std::function<void(int64_t cell, const LatencyRow& row)>;
  Status VisitLatency(int64_t most_shared, const LatencyVisitor& visit);
  // Every scored sample: its id, its facts, score and parts; in no order.
  using FactsVisitor =
      std::function<void(int64_t cell, const std::string& sample_id, std::string_view facts,
                         double score, const std::vector<double>& parts)>;
  Status VisitFacts(const FactsVisitor& visit);
  // Entries of one modality that the samples of a cell held, over all layers; those that are ok.
  struct ModalityShare {
    std::string modality;
    int64_t samples = 0;
    int64_t entries_before = 0, entries_after = 0, bytes = 0;
    double attention = 0, attention_kept = 0;  // means over samples and layers
  };
  // Cells whose samples show pictures, by cell, then modality.
  Result<std::vector<std::pair<int64_t, ModalityShare>>> Modalities();
  Result<std::vector<LeaderboardRow>> Leaderboard();

  // SHA-256 over every result column: equal for equal results, in whatever order they were
  // recorded. Times, runs, machines, events and peaks are not results.
  Result<std::string> ResultDigest();
  // Reads every page and every reference.
  Status Check();
  const std::string& path() const;

 private:
  friend class report::Queries;  // reads what figures need, by SQL of its own
  class Impl;
  explicit ResultStore(std::unique_ptr<Impl> impl);
  Result<MergeReport> TakeOver(ResultStore& source);  // inside the caller's transaction
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvgauge
