// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "reports/leaderboard.h"

namespace kvgauge {

// The whole model, or of its rows the fields named.
Json LeaderboardToJson(const LeaderboardModel& model, const std::vector<std::string>& stores,
                       const std::vector<std::string>& fields);

}  // namespace kvgauge
