// SPDX-License-Identifier: Apache-2.0
// Two rows of the leaderboard against each other, paired by sample, task by task and over all.
#pragma once

#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "reports/leaderboard.h"
#include "reports/statistics.h"

namespace kvgauge {

// "snapkv", "snapkv@20%", "snapkv[score.window=16]@20%".
struct RowName {
  std::string method;
  std::optional<std::string> variant, budget;  // nothing: the only one there is
};
RowName ParseRowName(const std::string& text);
// Does not care what a name leaves open.
bool Fits(const RowName& name, const CellRow& cell);
std::string RowLabel(const CellRow& cell);
// " (did you mean 'snapkv@10%'?)" or "": for a name that is none of `labels`.
std::string DidYouMeanRow(const std::string& name, const std::vector<std::string>& labels,
                          const std::vector<std::string>& methods);

struct CompareOptions {
  double alpha = 0.05;
  double score_margin = 0.01;
  double bytes_margin = 0.005;   // relative
  double latency_margin = 0.05;  // relative
  uint64_t seed = 0;
  int64_t resamples = 10000;
  // Beginnings of names, or a group of tasks; "": all.
  std::string task = {}, model = {}, compress_at = {};
  SumScores set_scores = {};
};

// b against a; positive is better for b.
struct RowComparison {
  std::string model, task, compress_at;
  std::string a, b;  // labels
  double scale = 1;
  int digits = -1;
  bool lower_is_better = false;
  std::string obstacle;  // why they cannot be compared here; "" when they can

  // Recorded, and what came of them: only samples that both have a score of are compared.
  struct Side {
    int64_t samples = 0, failed = 0, skipped = 0;
  };
  Side a_side, b_side;
  double a_score = 0, b_score = 0;  // over the samples of both
  Evidence score;
  double p_adjusted = 1;  // Holm, over the tasks
  Verdict verdict = Verdict::kUndecided;

  double a_ratio = 0, b_ratio = 0;  // logical bytes over the full cache's; 0: not measured
  Evidence bytes;                   // of minus the logarithm of bytes
  Verdict bytes_verdict = Verdict::kUndecided;

  // Isolated times of b over a's at the longest context that both have: geometric means over
  // repetitions of one round, or, of rows timed in different runs, over the full cache's beside
  // them. Evidence is of minus the logarithm; fewer than LatencyRow::kLeastRepetitions make no
  // interval.
  struct Times {
    Evidence evidence;  // samples == 0: not measured
    Verdict verdict = Verdict::kUndecided;
    double ratio() const { return std::exp(-evidence.value); }
  };
  Times ttft, tpot;
  int64_t latency_tokens = 0;
  int64_t disturbed = 0;  // repetitions left out, other programs ran beside them
};

struct RowsComparison {
  std::vector<RowComparison> tasks;
  std::optional<RowComparison> overall;  // the plain mean over tasks, where there are several
  const RowComparison& conclusion() const { return overall ? *overall : tasks[0]; }
};

// An unknown or ambiguous name is an error that says what is there.
Result<RowsComparison> CompareRows(std::span<ResultStore* const> stores, const RowName& a,
                                   const RowName& b, const CompareOptions& options = {});

}  // namespace kvgauge
