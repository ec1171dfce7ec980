// SPDX-License-Identifier: Apache-2.0
// The gate: a baseline store against a candidate store, a verdict for each group of cells and each
// of accuracy, bytes and latency. Pure: reads both stores, writes nothing.
//
// A group is model, task, method, variant, budget and compress_at, over all seeds; versions of
// methods and programs may differ, signatures may not. Samples are paired by seed and id.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "reports/set_score.h"
#include "reports/statistics.h"
#include "reports/store.h"

namespace kvgauge {

struct GateMargins {
  double alpha = 0.05;
  // A group, sample, byte count or time that the candidate lacks makes the comparison impossible,
  // and so does a group of which no sample of the baseline succeeded; false: it is left out.
  bool complete = true;
  uint64_t seed = 0;
  int64_t resamples = 10000;
  struct Limits {
    double margin = 0;
    double tolerance = 0;
  };
  Limits accuracy = {0.01, 0.0};  // in units of the score; of a perplexity, relative
  // Relative. A method's logical bytes are the same in every run of the same code, so any
  // difference counts; resident bytes come in pages.
  Limits bytes = {0.0, 0.0};
  Limits resident = {0.005, 0.0};
  Limits latency = {0.05, 0.02};  // relative
  // How far a machine's speed drifts between runs for no reason of the program's. Times that no
  // full cache was measured beside (its own) are compared with intervals wider by that much on
  // either side, unless both stores hold kDriftRuns runs, whose means then tell it.
  double latency_drift = 0.2;
  static constexpr int64_t kDriftRuns = 3;
  // Repetitions during which other programs had more of the machine than this say nothing.
  double max_others_share = LatencyRow::kMaxOthersShare;
};
// An unknown key, a wrong type or a number out of range is an error that names it.
Result<GateMargins> ParseGateMargins(const Json& json, const std::string& origin);
Result<GateMargins> ReadGateMargins(const std::string& path);

enum class GateMetric { kAccuracy, kBytes, kLatency };
std::string_view NameOf(GateMetric metric);

struct GateLine {
  GateMetric metric = GateMetric::kAccuracy;
  std::string group;  // "ref-gqa, needle/single, snapkv, 20%, prompt"
  // "score", "perplexity", "logical bytes", "resident bytes", "ttft at 4096 tokens"
  std::string quantity;
  // Changes are shares of the baseline, and less is better: bytes, times, perplexities.
  bool relative = false;
  bool over_full = false;  // times are shares of the full cache's of the same round, not seconds
  Verdict verdict = Verdict::kUndecided;
  bool comparable = true;
  std::string reason;  // why, where the numbers alone do not say
  std::string remedy;  // of UNDECIDED: what would decide it, "more samples"
  // Means of score, bytes, or seconds (times over the full cache's, where that was interleaved).
  double baseline = 0, candidate = 0;
  // The difference of scores, or minus the logarithm of a relative change: positive is better.
  Evidence evidence;
  double p_adjusted = 1;  // Holm, over the lines of one metric
  double margin = 0;
};

struct GateReport {
  std::vector<GateLine> lines;  // by metric, then in the order of the baseline's cells
  double alpha = 0.05;

  int64_t Count(Verdict verdict) const;  // of what is comparable
  int64_t NotComparable() const;
  // 0 pass, 1 something is worse, 2 something cannot be compared, 3 undecided and `strict`.
  int ExitCode(bool strict) const;
};

// Which groups of the baseline are compared: beginnings of names, or a group of tasks; "": all.
struct GateScope {
  std::string task = {}, model = {}, compress_at = {};
};

Result<GateReport> CompareStores(ResultStore& baseline, ResultStore& candidate,
                                 const GateMargins& margins, const SumScores& set_scores = {},
                                 const GateScope& scope = {});

// A line in words: change and interval in points of the score, or percent of bytes and time.
struct GateText {
  std::string verdict, baseline, candidate, change, interval, p, note;
};
GateText Describe(const GateLine& line);
// What would decide the lines that are undecided: "4 need a quieter machine"; "" where none is.
std::string GateRemedies(const GateReport& report);

std::string GateMarkdown(const GateReport& report);
// A test case for each line: WORSE is a failure, not comparable an error, UNDECIDED a skip.
std::string GateJUnit(const GateReport& report);

}  // namespace kvgauge
