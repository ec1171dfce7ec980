// SPDX-License-Identifier: Apache-2.0
// The command `score`: a metric, or a task's whole scoring, over a file of predictions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct ScoreOptions {
  // One of the two.
  std::string metric;
  std::string task;  // a name, or the path of a task file

  std::string task_directory;   // "": the shipped ones
  std::string pairs;            // JSON lines; datasets/pairs.h says what they hold
  std::vector<std::string> by;  // keys to group by, besides those of the task
  // For pass_at_k only: the interpreter with its flags. Empty: nothing is ever run.
  std::string execute;
  std::vector<int64_t> ks;          // none: 1
  std::optional<double> timeout_s;  // none: SandboxLimits' own
  bool unisolated = false;
  // For judge and judge_wins only; the key is in KVGAUGE_JUDGE_KEY, which a listing of processes
  // does not show.
  std::string judge_url;  // or the directory of a model; "": KVGAUGE_JUDGE_URL
  std::string judge_model;
  std::string grades;  // file of the grades given so far; "": none is kept
  int64_t judge_requests = -1, judge_tokens = -1;  // at most; -1: no bound
  bool list = false;                               // print what metrics there are, and nothing else
  bool skip_bad = false;
  bool json = false;
};

Status RunScore(const ScoreOptions& options);

}  // namespace kvgauge
