// SPDX-License-Identifier: Apache-2.0
// What a store already holds of a plan: how fast it went, what is left, what was asked otherwise.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "datasets/sample.h"
#include "datasets/task.h"
#include "reports/store.h"
#include "src/run/run_estimate.h"
#include "src/run/run_plan.h"
#include "src/run/run_progress.h"

namespace kvgauge {

// Seconds a cell of that group took in recorded runs; nothing where none is recorded.
Result<RateOf> RecordedRates(ResultStore& store);

// What is left of each group of the plan.
Result<std::vector<RunProgress::Work>> WorkLeft(const RunPlan& plan, const SampleChoice& choice,
                                                ResultStore& store);

// Cells of the same names under other inputs are run anew, which a user must not have to guess: a
// sentence for each kind.
Result<std::vector<std::string>> RecordsOfOtherInputs(const RunPlan& plan, ResultStore& store);

// A sample is recorded under its name with content of another hash, and what that means.
Error OtherContent(const std::string& store, const Task& task, const Sample& sample,
                   const std::string& recorded_hash);

}  // namespace kvgauge
