// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "reports/draws.h"
#include "reports/leaderboard_split.h"

namespace kvgauge {

// The whole model, or of its rows the fields named. `splits` and `draws`: beside its tables.
Json LeaderboardToJson(const LeaderboardModel& model, const std::vector<LeaderboardSplit>& splits,
                       const std::vector<DrawTable>& draws, const std::vector<std::string>& stores,
                       const std::vector<std::string>& fields);

}  // namespace kvgauge
