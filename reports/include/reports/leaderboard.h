// SPDX-License-Identifier: Apache-2.0
// The leaderboard: the numbers that every table, comparison and report is made of. Pure: reads
// stores, writes nothing; the same stores give the same numbers on every machine.
//
// A table holds what may be compared: rows of one model, task, compress_at and signature, or of
// one group of such tasks. A row is a method, a variant and a budget over all its seeds. Rows are
// paired with the full cache of their table by seed, sample and content.
//
// Cost: a bootstrap of a column of up to 2,000 clusters is `resamples` draws that all columns
// share; larger ones take the normal interval. A million samples open and rank in two seconds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "reports/drawn_by.h"
#include "reports/set_score.h"
#include "reports/statistics.h"
#include "reports/store.h"
#include "reports/store_rows.h"

namespace kvgauge {

enum class TaskGrouping {
  kTask,   // a table for each task
  kGroup,  // a table for each group of tasks: the plain mean over its tasks
};

struct LeaderboardOptions {
  TaskGrouping by = TaskGrouping::kTask;
  double alpha = 0.05;
  // Differences of the score up to this are equivalent; of a perplexity, relative to the full
  // cache's.
  double margin = 0.01;
  uint64_t seed = 0;
  int64_t resamples = 2000;
  bool latency = true;  // false: latencies are not read
  SumScores set_scores = {};
};

// Means over the samples of a row that hold counts after compression; of a group of tasks the mean
// over tasks.
struct ByteSummary {
  int64_t samples = 0;  // 0: nothing was counted, the rest means nothing
  double nominal = 0, logical = 0, resident = 0, full = 0;  // of a sample's cache
  double host = 0;  // of the logical ones, what a placement puts on the host; it is no resident one
  // Ratios of the sums: to the full cache's bytes, and to the tokens seen when they were counted.
  double nominal_ratio = 0, logical_ratio = 0, resident_ratio = 0, host_ratio = 0;
  double nominal_per_token = 0, logical_per_token = 0, resident_per_token = 0, host_per_token = 0;

  // What is held without what lies on the host, over the full cache's bytes.
  double device_ratio() const { return resident_ratio - host_ratio; }
};

struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0;
};

// Times of a row at one context length. Isolated: over repetitions, without those that other
// programs disturbed (LatencyRow::kMaxOthersShare). Shared, measured in company: over samples of
// all lengths, never to be ranked by.
struct LatencySummary {
  bool isolated = true;
  // Isolated, and not one repetition was undisturbed: of all of them, never to compare by.
  bool disturbed = false;
  int64_t left_out = 0;        // disturbed repetitions, beside others that were not
  int64_t context_tokens = 0;  // shared: the median
  int64_t count = 0;           // repetitions, or samples
  Percentiles ttft_s;          // over repetitions or samples
  Percentiles tpot_s;          // over steps, median over repetitions or samples
  // Medians of this over the full cache at the same run, length and repetition, both undisturbed.
  // Isolated only.
  std::optional<double> ttft_ratio, tpot_ratio;
  // Means.
  double prefill_s = 0, score_s = 0, select_s = 0, compact_s = 0, quantise_s = 0, attend_s = 0,
         other_s = 0;
  double vision_s = 0;  // of the pictures' tower; in none of the above
  double peak_bytes = 0, resident_bytes = 0;
  double others_share = 0;  // the largest: how far other programs disturbed it

  double compress_s() const { return score_s + select_s + compact_s + quantise_s; }
};

struct LeaderboardLine {
  MethodRow method;
  std::string budget = "none", budget_kind = "none";
  double budget_value = 0;
  std::vector<int64_t> seeds;
  std::vector<std::string> cell_keys;  // by task, then seed
  int64_t tasks = 1;                   // that it has samples of

  // `scored` are ok and hold a score.
  int64_t samples = 0, ok = 0, failed = 0, skipped = 0, not_engaged = 0, scored = 0;
  std::string trouble;  // the most frequent reason of what failed or was skipped

  Estimate score;  // in the metric's units
  // The score as the tasks' authors print it: of each task its scale times the mean, rounded to the
  // decimals it keeps; of a group the mean of these, as tables of published averages are made.
  double reported = 0;
  // Against the full cache on the samples that both have. Positive is better, also of perplexities.
  std::optional<Evidence> versus_full;
  double p_adjusted = 1;  // Holm, over all rows of its model and compress_at
  Verdict verdict = Verdict::kUndecided;
  std::string not_compared;  // why there is no evidence; "" where there is

  ByteSummary bytes;
  // Means over samples that have them. `read_share`: of the entries held, those a step attends
  // over. `fetched_per_step`: bytes that it fetches from the host, where entries lie there.
  std::optional<double> kl_divergence, top1_agreement, read_share, fetched_per_step;
  std::vector<LatencySummary> latency;  // isolated by length; else one shared

  std::optional<int64_t> rank;  // by score, then logical bytes; equals share a rank
  std::string not_ranked;       // why there is none
};

// One number for a method and variant over its budgets that have a rank: other rows are of fewer
// samples.
struct MethodSummary {
  std::string method, variant;
  int64_t budgets = 0;
  double low_ratio = 0, high_ratio = 0;  // of logical bytes, as measured
  std::optional<Estimate> area;          // mean score over log(bytes) in the table's range
  std::optional<Estimate> versus_full;   // of the same samples; positive is better
  std::string missing;                   // why there is no area
  std::string left_out;  // budgets without a rank, and why: "5% (3 of 40 samples failed)"
};

struct LeaderboardTable {
  std::string model, model_fingerprint;
  std::string task;                     // or the group's name
  std::vector<std::string> task_names;  // one, or those of the group
  std::string compress_at;
  std::vector<std::string> signatures;  // keys, beside task_names
  std::string metric;
  double scale = 1;  // scores are shown times this
  int digits = -1;   // decimals of what is shown; -1: as the reader likes
  bool lower_is_better = false;
  // How answers were drawn: a score is the mean over draws then, and a sample is one. None: greedy.
  std::optional<DrawnBy> drawn;
  std::vector<std::string> report_by;  // facts of samples that the task's authors print scores by

  // Comparisons that p_adjusted is corrected over: those of all tables of this model and
  // compress_at in which any sample differs from the full cache.
  int64_t corrected_over = 0;

  std::vector<LeaderboardLine> lines;  // ranked first, then by method, variant, budget
  // Ratios of logical bytes that as many methods as possible cover; empty where none has two
  // budgets.
  std::optional<Interval> area_range;
  std::vector<MethodSummary> methods;  // by area, best first; those without last
  std::vector<std::string> notes;      // what a reader must know: other signatures, missing tasks
};

struct LeaderboardModel {
  LeaderboardOptions options;
  std::vector<LeaderboardTable> tables;  // by model, task, compress_at, signature
  int64_t samples = 0;
  int64_t comparisons = 0;  // with a full cache, also those without any difference
};

// The leaderboard of the union of the stores: a cell or sample that several hold counts once. Two
// successes of one sample with different scores are an error that names both files.
Result<LeaderboardModel> MakeLeaderboard(std::span<ResultStore* const> stores,
                                         const LeaderboardOptions& options = {});

// The keys at which two signatures part: "template, prompt.version"; "all" where one is no object.
std::string DifferingSignatureKeys(const std::string& a, const std::string& b);

}  // namespace kvgauge
