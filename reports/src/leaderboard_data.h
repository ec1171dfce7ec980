// SPDX-License-Identifier: Apache-2.0
// What the leaderboard computes from: the union of several stores, arranged as matrices of lines by
// units. A unit is a sample under a seed; all lines of a task number them alike, so pairing is a
// walk along two vectors.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "reports/leaderboard.h"
#include "reports/set_score.h"
#include "reports/store.h"

namespace kvgauge {

struct TaskTally {
  double sum = 0;
  int64_t count = 0;
  void Add(double value) {
    sum += value;
    ++count;
  }
  std::optional<double> Mean() const {
    if (count == 0) return std::nullopt;
    return sum / static_cast<double>(count);
  }
};

// A method, variant and budget on one task.
struct TaskLine {
  std::vector<StoredCell> cells;  // one a seed; their ids mean nothing
  // [units]; NaN: none. Where the score of a set is no mean, SetValues of all that the line has.
  std::vector<double> scores;
  std::vector<double> parts;      // [units][TaskData::part_count]; NaN: none
  std::vector<double> log_bytes;  // [units], of logical bytes; NaN: none
  int64_t samples = 0, ok = 0, failed = 0, skipped = 0, not_engaged = 0, scored = 0;
  std::map<std::string, int64_t> troubles;  // reason -> how often
  ByteSummary bytes;
  TaskTally kl_divergence, top1_agreement, read_share, fetched_per_step;
  std::vector<LatencyRow> latency;
};

// What may be compared on one task: one model, compress_at and signature.
struct TaskData {
  std::string model, model_fingerprint, task, group, compress_at, metric;
  std::string signature_key, signature;
  double scale = 1;
  int digits = -1;
  std::vector<std::string> report_by;
  bool lower_is_better = false;
  std::vector<TaskLine> lines;
  std::vector<uint32_t> clusters;  // [units], dense
  uint32_t cluster_count = 0;
  std::vector<std::string> notes;
  // The score of a set; empty where it is the mean.
  SumScore set_score;
  size_t part_count = 0;
};

struct LeaderboardData {
  std::vector<TaskData> tasks;  // by model, task, compress_at, signature
  int64_t samples = 0;
};

Result<LeaderboardData> ReadLeaderboardData(std::span<ResultStore* const> stores, bool latency,
                                            const SumScores& set_scores);

// Lengths at which both were timed in isolation, the longest first.
std::vector<int64_t> CommonLengths(std::span<const LatencyRow> a, std::span<const LatencyRow> b);

// Isolated times of b against a's at one length, of minus the logarithm of the ratio: over
// repetitions of one round where both were timed in one run, else each over the full cache's
// beside it. Repetitions that other programs disturbed are left out and added to `disturbed`.
Evidence CompareTimes(std::span<const LatencyRow> a, std::span<const LatencyRow> b,
                      std::span<const LatencyRow> full, int64_t tokens, double LatencyRow::*field,
                      double alpha, int64_t& disturbed);

// The times of one line, over any of its tasks. `full`: rows of the full cache that times are
// related to.
std::vector<LatencySummary> SummariseLatency(std::span<const LatencyRow* const> rows,
                                             std::span<const LatencyRow* const> full);

}  // namespace kvgauge
