// SPDX-License-Identifier: Apache-2.0
// The latency phase of a run: every row of the plan alone, into its cell of the first task.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/result.h"
#include "reports/store.h"
#include "src/latency/latency_phase.h"
#include "src/run/interrupt.h"
#include "src/run/run_plan.h"
#include "src/run/run_progress.h"

namespace kvgauge {

// How many lines of progress the phase has: one for each model and place of compression that has
// rows. They are numbered on after the plan's groups.
size_t CountLatencyGroups(const RunPlan& plan);

// Precondition: the configuration has a latency section, and nothing else uses the store meanwhile.
Result<LatencyOutcome> RunLatencyPhase(const RunPlan& plan, ResultStore& store, int64_t run,
                                       RunProgress& progress, const InterruptGuard& interrupt);

}  // namespace kvgauge
