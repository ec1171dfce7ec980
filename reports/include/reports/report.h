// SPDX-License-Identifier: Apache-2.0
// The report: one HTML file made of a result store. It holds everything it shows, asks no network
// for anything, and runs no script but its own, whatever the texts in the store try. Equal stores
// give equal bytes.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "reports/gate.h"
#include "reports/leaderboard.h"
#include "reports/store.h"

namespace kvgauge {

struct ReportOptions {
  LeaderboardOptions leaderboard;  // `by` is chosen by the report
  // Answers of methods that the page holds, those that broke first. The others stay in the store,
  // and the page says so.
  int64_t max_answers = 2000;
  int64_t max_text_bytes = 2000;  // of each text
  // Different pictures of samples that the page holds, those of the first answers.
  int64_t max_pictures = 1000;
  std::string title;  // "": the models' names
};

// Counts of method answers that can be compared with the full cache's: all of them, and those on
// the page.
struct ReportCounts {
  int64_t answers = 0, answers_held = 0;
};

// The page of a store without cells says so.
Result<std::string> RenderReport(ResultStore& store, const ReportOptions& options = {},
                                 ReportCounts* counts = nullptr);

// Two stores side by side, with the gate's verdicts: does `candidate` keep what `baseline` had?
Result<std::string> RenderComparison(ResultStore& baseline, ResultStore& candidate,
                                     const GateMargins& margins, const ReportOptions& options = {});

}  // namespace kvgauge
