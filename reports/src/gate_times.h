// SPDX-License-Identifier: Apache-2.0
// The isolated times of a group, as the gate compares them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/gate_groups.h"

namespace kvgauge {

// Logarithms of one quantity at one context length. `related`: over the full cache's time of the
// same run, length and repetition.
struct GateTimes {
  std::map<std::string, std::vector<double>> by_run;
  std::vector<double> logs;  // all of them
  bool related = false;
  std::set<std::string> machines;
  int64_t contended = 0;
};
// By quantity and context tokens.
using GateGrid = std::map<std::pair<std::string, int64_t>, GateTimes>;

// `groups`: of the store, for the full cache's times. Repetitions beside which other programs had
// more than `max_others_share` of the machine are counted and left out.
Result<GateGrid> ReadGateTimes(ResultStore& store, const std::vector<GateGroup>& groups,
                               const GateGroup& group, double max_others_share);

}  // namespace kvgauge
