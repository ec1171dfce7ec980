// SPDX-License-Identifier: Apache-2.0
// What several draws of each answer say together, below a table of the leaderboard.
#pragma once

#include <string>

#include "core/json_fwd.h"
#include "reports/draws.h"

namespace kvgauge {

// A table with a heading. Precondition: it is not empty.
std::string DrawsText(const LeaderboardTable& table, const DrawTable& draws, bool markdown,
                      bool colour);
Json DrawsJson(const LeaderboardTable& table, const DrawTable& draws);

}  // namespace kvgauge
