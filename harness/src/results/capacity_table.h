// SPDX-License-Identifier: Apache-2.0
// Beside a leaderboard: what a memory holds and serves with its rows.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "reports/capacity.h"
#include "reports/leaderboard.h"
#include "reports/store.h"

namespace kvgauge {

// What the union of the stores holds; a row that several hold counts once.
Result<std::vector<CapacityBoard>> ReadCapacities(std::span<ResultStore* const> stores);

// A table for each memory, workload and policy in which the table's model was measured: its rows
// with score and capacity, the most held first, and what lacks one of both; "" where there is none.
std::string CapacityText(const LeaderboardTable& table,
                         const std::vector<CapacityBoard>& capacities, bool markdown, bool colour);
// The same of models that have no table, without scores; "" where there is none.
std::string UnscoredCapacityText(const LeaderboardModel& model,
                                 const std::vector<CapacityBoard>& capacities, bool markdown,
                                 bool colour);
Json CapacityJson(const std::vector<CapacityBoard>& capacities);

}  // namespace kvgauge
