// SPDX-License-Identifier: Apache-2.0
// What a plan will take before anything is run: cells, time, memory, and what cannot run at all.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/result.h"
#include "reports/store.h"
#include "src/run/run_plan.h"
#include "src/run/run_reasons.h"

namespace kvgauge {

// What a group will take, from reading all of its samples.
struct GroupEstimate {
  int64_t samples = 0, cells = 0, done = 0;
  int64_t skipped_records = 0;  // malformed ones
  int64_t longest_prompt = 0;
  double seconds = 0;  // of what is still to be run
  // Rows that read prompts in chunks, each for itself: how many, their prefills still to be run,
  // what these take more than one that is shared, and the most bytes that one of them holds.
  int64_t own_rows = 0, own_prefills = 0;
  double own_seconds = 0;
  int64_t own_bytes = 0;
  bool measured = false;     // seconds are from a recorded run, not from the simple model
  int64_t memory_bytes = 0;  // at most, by the engine's own plan
  int64_t least_bytes = 0;   // with one contender at a time
  std::vector<ReasonTally::Line> unfit;  // of the cells still to be run, those that cannot
};
// `recorded(group, cell, ids)` gives the ids that are pending; `rate(group)` the recorded seconds a
// cell took, if known.
using PendingOf = std::function<Result<std::vector<std::string>>(
    const CellRow& cell, const std::vector<std::string>& ids)>;
using RateOf = std::function<std::optional<double>(const PlanGroup& group)>;
// Groups that differ in their prefill alone have the same samples, which are read once. What it is
// made of outlives it.
class GroupEstimator {
 public:
  GroupEstimator(const RunPlan& plan, const SampleChoice& choice, PendingOf pending, RateOf rate);
  ~GroupEstimator();
  Result<GroupEstimate> Estimate(const PlanGroup& group);

 private:
  struct Samples;
  Result<const Samples*> Read(const PlanGroup& group);

  const RunPlan& plan_;
  const SampleChoice& choice_;
  const PendingOf pending_;
  const RateOf rate_;
  std::map<std::tuple<size_t, size_t, CompressAt, int64_t>, std::unique_ptr<Samples>> read_;
};

// The latency phase of one model compressed at one place.
struct LatencyEstimate {
  size_t model = 0;
  CompressAt compress_at = CompressAt::kPrompt;
  int64_t contenders = 0, longest_prompt = 0;
  int64_t measurements = 0, done = 0;  // to come, with the full caches beside contenders; recorded
  double seconds = 0;
};
// In the order of the run. `store` may be null: then nothing is recorded.
Result<std::vector<LatencyEstimate>> EstimateLatency(const RunPlan& plan, ResultStore* store);

// Refuses a choice of samples that no task has any of, and a bound on memory that no cell can keep,
// with the least that one needs. Reads samples until one can run.
Status CheckSomethingRuns(const RunPlan& plan, const SampleChoice& choice);

}  // namespace kvgauge
