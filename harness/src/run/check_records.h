// SPDX-License-Identifier: Apache-2.0
// A look at the data files of a run before it starts.
#pragma once

#include "core/result.h"
#include "src/run/interrupt.h"
#include "src/run/run_plan.h"

namespace kvgauge {

// Reads every record that the plan takes from files. A malformed one is an error that names the
// configuration, the task, file and line, so that a run ends before anything is recorded and not
// hours later. Records that the configuration leaves out (skip_bad) are none. Ends early, without
// an error, on a signal.
Status CheckRecords(const RunPlan& plan, const SampleChoice& choice,
                    const InterruptGuard& interrupt);

}  // namespace kvgauge
