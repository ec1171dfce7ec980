// SPDX-License-Identifier: Apache-2.0
// What a method buys a server: how many sequences fit into a memory, and how fast they are served.
// `kvgauge bench capacity`; docs/capacity.md says what each number means.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "runner/engine.h"
#include "src/cli/commands.h"
#include "src/model/method_flags.h"
#include "src/serve/serve_estimate.h"
#include "src/serve/serve_metrics.h"
#include "src/serve/trace.h"

namespace kvgauge {

// One method at a budget under a policy and a largest batch.
struct CapacityCase {
  const ChosenMethod* chosen = nullptr;
  ServePolicy policy = {};
  int64_t max_batch = 0;     // 0: as many as the memory holds
  int64_t memory_bytes = 0;  // for everything; 0: no limit
  int64_t device_bytes = 0;  // that a device has for everything; 0: unknown
  int64_t host_bytes = 0;
  uint64_t seed = 1;
  std::string directory = {};
};

struct CapacityResult {
  std::string refused = {};  // why nothing ran; "": it did
  int64_t max_batch = 0;
  int64_t weight_bytes = 0, working_bytes = 0;
  int64_t cache_bytes = 0;  // what is left for caches; 0: no limit
  // Sequences of the longest request that fits alone, that are planned to fit at once; 0: no limit.
  int64_t planned_held = 0;
  ServeOutcome outcome = {};
  ServeMetrics metrics = {};
  int64_t peak_bytes = 0;     // the most that the pools of caches held, with captures of prompts
  double sequence_bytes = 0;  // resident at its end, mean of those served
  int64_t not_engaged = 0;
  std::string not_engaged_because = {};
  double others_share = 0;
  std::vector<std::vector<int32_t>> answers = {};  // [requests]; of what ran
};

// The memory that a case leaves for caches, before any weight is read. A request that does not fit
// alone fails by itself, as the loop comes to it; refused is what can serve none.
struct CapacityPlan {
  int64_t working_bytes = 0, cache_bytes = 0;
  int64_t planned_held = 0;
  int64_t max_batch = 0;
  // The longest request that fits, prompt and answer: passes have working memory for no longer one.
  // 0: no request fits the model.
  int64_t longest_tokens = 0;
};
Result<CapacityPlan> PlanCapacity(const CapacityCase& of, const Trace& trace,
                                  const PlannedModel& model);

CapacityResult RefusedCase(const CapacityCase& of, const std::string& why,
                           const PlannedModel& model);

// Serves the trace with a loaded model. What the method or the memory refuses is the case's result,
// and so is a disk or a device that had no more in the middle.
Result<CapacityResult> MeasureCapacity(const CapacityCase& of, const Trace& trace, Model& model,
                                       const std::function<bool()>& cancelled = {});
// The same by counting alone.
Result<CapacityResult> EstimateCapacity(const CapacityCase& of, const Trace& trace,
                                        const PlannedModel& model, const MachineRates& rates);

}  // namespace kvgauge
