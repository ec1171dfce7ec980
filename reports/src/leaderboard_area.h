// SPDX-License-Identifier: Apache-2.0
// One number for a method over its budgets.
#pragma once

#include <cstddef>
#include <vector>

#include "reports/leaderboard.h"
#include "src/leaderboard_data.h"
#include "src/resampling.h"

namespace kvgauge {

inline constexpr size_t kNoLine = static_cast<size_t>(-1);

// A line's place in each task of its table; null where it was not run.
struct DraftLine {
  std::vector<const TaskLine*> parts;
};

// The mean over tasks of sign x (scores of `line`, less those of `other` where that is given), over
// the units that both have. Tasks without any are left out.
MeanColumn ScoreColumn(const std::vector<const TaskData*>& tasks, const DraftLine& line,
                       const DraftLine* other, double sign);

// Fills area_range and methods. `lines` lie beside table.lines.
void AddAreas(const std::vector<const TaskData*>& tasks, const std::vector<DraftLine>& lines,
              size_t reference, const LeaderboardOptions& options, LeaderboardTable& table);

}  // namespace kvgauge
