// SPDX-License-Identifier: Apache-2.0
// Runs a plan into a store: what is recorded stays, what is missing is run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "harness/cli.h"
#include "reports/store.h"
#include "src/run/interrupt.h"
#include "src/run/run_plan.h"
#include "src/run/run_progress.h"
#include "src/run/run_reasons.h"
#include "src/run/shared_work.h"

namespace kvgauge {

struct RunSettings {
  SampleChoice choice;
  bool retry = false;  // also what failed or was skipped
  std::string command;
  BuildInfo build;
  // Null: this call runs all of it. Else it is one worker among several, which runs the samples
  // that it claims and measures no times.
  SharedWork* work = nullptr;
};

struct RunOutcome {
  std::string run_key;
  int64_t cells = 0;                       // recorded by this call, of them
  int64_t failed = 0;                      // with a reason, and
  int64_t skipped = 0;                     // with a reason
  int64_t had = 0;                         // samples that were there for every contender
  int64_t succeeded = 0;                   // cells that this call ran to the end
  std::vector<ReasonTally::Line> reasons;  // of the failed and skipped, the most frequent first
  int64_t latencies = 0;                   // measured by this call
  int64_t latencies_failed = 0;            // left out, each a contender at a length
  int64_t prefills = 0;                    // samples that were prefilled, once for each group
  double seconds = 0;
  double processor_s = 0;  // of all processors together, and of that
  double recording_s = 0;  // on scoring and writing, which have a thread of their own
  int signal = 0;          // that interrupted it; 0: it went to the end
};

// An error ends the run; everything recorded before is in the store, and the same call goes on.
// Failures of single cells are recorded and are no error.
Result<RunOutcome> ExecuteRun(const RunPlan& plan, const RunSettings& settings, ResultStore& store,
                              RunProgress& progress, const InterruptGuard& interrupt);

}  // namespace kvgauge
