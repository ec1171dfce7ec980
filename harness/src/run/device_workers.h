// SPDX-License-Identifier: Apache-2.0
// A run over several devices of one machine: a worker for each, which is this program once more,
// all of them recording in one database. The process that starts them leads the run: it holds the
// database's lock, shows how far they are, and hands them the signal that interrupts it.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "src/run/interrupt.h"
#include "src/run/run_executor.h"
#include "src/run/run_progress.h"
#include "src/run/shared_work.h"

namespace kvgauge {

// The devices that --devices names, "0,1" or "all", of a run on `backend`. An error where one of
// them cannot be used or they are of different kinds, whose results may differ in the last bits.
Result<std::vector<int>> ChooseDevices(const std::string& text, const std::string& backend);

struct WorkerEnd {
  int device = 0;
  int exit_code = 0;  // 128 + the signal that ended it
  std::string run_key;
  int64_t cells = 0;
};

struct WorkersOutcome {
  RunOutcome all;  // of all workers together; the key is that of the first
  std::vector<WorkerEnd> workers;
};

// `words`: the command line of the run, which the workers are started with. What they write to
// standard error is passed on, the same line once.
Result<WorkersOutcome> RunWorkers(const std::vector<int>& devices,
                                  const std::vector<std::string>& words, const std::string& name,
                                  const SharedWork& work, RunProgress& progress,
                                  const InterruptGuard& interrupt);

}  // namespace kvgauge
