// SPDX-License-Identifier: Apache-2.0
// Scoring a file of predictions: one JSON object a line with `prediction` (text), `answers` (a text
// or number or a list of them, not all blank), and optionally `all_classes` (a list of texts or
// null), `language` and `kind` (of the question, where a task mixes several). Published files have
// other names for the first two: `pred` will do, and so will `ground_truth`, `label`, `outputs` or
// `answer`. Where `response` stands beside `pred`, a task reads the first, a metric the second. Two
// lines of one `id` are an error, unless another key tells them apart. Other keys are left alone,
// blank lines too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "datasets/metric.h"
#include "datasets/task.h"

namespace kvgauge {

inline constexpr int64_t kMaxPairBytes = int64_t{64} << 20;  // of one line

struct PairOptions {
  const Task* task = nullptr;  // its stop texts and post-processing come before the metric
  // Without a task: finds the one that a line names as its `task`, whose stop texts and
  // post-processing come before the metric. Empty: `task` is left alone like other keys. What it
  // returns outlives the call.
  std::function<Result<const Task*>(const std::string& name)> find_task = {};
  bool skip_bad = false;             // leave out lines that cannot be read or scored
  std::vector<std::string> by = {};  // keys of the objects, each of whose values gets a score. A
                                     // "length_bucket" that is not there is that of "length"
};

struct GroupScore {
  std::string key, value;
  int64_t count = 0;
  double score = 0;
  double reported = 0;  // as the task's report prints it; without a task the score
};

struct PairScores {
  std::vector<double> scores;
  std::vector<int64_t> lines;          // of each score, from 1
  std::vector<std::string> bad_lines;  // messages, when they are skipped
  double mean = 0;                     // of the set, as the metric defines it
  double reported = 0;                 // the same as the task's report prints it
  std::vector<GroupScore> groups;      // in the order of `by`, then of the values
};

// The mean over the groups of one key, each counted once (MLVU's M-Avg); 0 without groups.
double MeanOfGroups(const PairScores& scores, const std::string& key);

// Reads line by line and never holds more than one. No line left to score is an error.
Result<PairScores> ScorePairs(const MetricSpec& metric, const std::string& path,
                              const PairOptions& options);

}  // namespace kvgauge
