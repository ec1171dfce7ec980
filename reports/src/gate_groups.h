// SPDX-License-Identifier: Apache-2.0
// What of two stores the gate holds against each other: cells that belong together, and their
// samples in pairs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/gate.h"
#include "reports/store.h"

namespace kvgauge {

// Cells of one store that belong together.
struct GateGroup {
  std::string name;
  std::string model, task, compress_at;
  std::string task_group, metric;  // of the task
  bool lower_is_better = false;    // its metric's direction
  bool full_cache = false;
  std::vector<StoredCell> cells;  // one a seed
};

Result<std::vector<GateGroup>> ReadGateGroups(ResultStore& store);
// Null: there is none of that name.
const GateGroup* FindGateGroup(const std::vector<GateGroup>& groups, const std::string& name);
bool InScope(const GateGroup& group, const GateScope& scope);
Error NothingInScope(const std::string& path, const std::vector<GateGroup>& groups,
                     const GateScope& scope);
// Why two groups must not be compared; "" when they may.
std::string GateObstacle(const GateGroup& a, const GateGroup& b);

struct GatePair {
  ScoreRow a, b;
};

// Samples of both by seed and id, in the baseline's order.
struct GatePairs {
  std::vector<GatePair> pairs;
  int64_t missing = 0;    // of the baseline's, in the candidate
  std::string differing;  // a sample of other content under the same id; "" for none
};

Result<GatePairs> ReadGatePairs(ResultStore& baseline, const GateGroup& a, ResultStore& candidate,
                                const GateGroup& b);

}  // namespace kvgauge
