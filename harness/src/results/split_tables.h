// SPDX-License-Identifier: Apache-2.0
// A leaderboard's split for people.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "reports/leaderboard_split.h"

namespace kvgauge {

// A table with a heading: one key across, or the first down and the second across.
std::string SplitText(const LeaderboardTable& table, const LeaderboardSplit& split, bool markdown,
                      bool colour);
// Keys that no sample has are an error that names those there are.
Status CheckSplits(const std::vector<std::string>& keys,
                   const std::vector<LeaderboardSplit>& splits,
                   std::span<ResultStore* const> stores);

}  // namespace kvgauge
