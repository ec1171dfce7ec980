// SPDX-License-Identifier: Apache-2.0
// Scores that another program measured. They are shown beside ours, in a table of their own, and
// nothing else is done with them: no rank, no interval, no comparison, no place in a database.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"

namespace kvgauge {

struct ForeignRow {
  std::string program;  // "lm-eval", "kvpress"
  std::string model, task, method, metric;
  double score = 0;  // as that program prints it
  std::optional<double> standard_error;
  std::optional<int64_t> samples;
  std::string protocol;  // what the file says of how it was measured
  std::string source;    // the file, and the beginning of its SHA-256
};

// A results_*.json of lm-evaluation-harness.
Result<std::vector<ForeignRow>> ReadLmEval(const std::string& path);
// A directory with metrics.json and config.yaml of kvpress's evaluation, or one that holds such.
Result<std::vector<ForeignRow>> ReadKvpress(const std::string& directory);

// What `kvgauge import` writes, and `--foreign` reads.
Json ToJson(const std::vector<ForeignRow>& rows);
Result<std::vector<ForeignRow>> ReadForeignRows(const std::string& path);
Result<std::vector<ForeignRow>> ReadForeignRows(const std::vector<std::string>& paths);

// The table, with a heading that says what it is not.
std::string ForeignText(const std::vector<ForeignRow>& rows, bool markdown);

struct ImportOptions {
  std::vector<std::string> inputs;
  std::string out;  // "": only shown
  bool json = false;
};
Status RunImport(const std::string& program, const ImportOptions& options);

}  // namespace kvgauge
