// SPDX-License-Identifier: Apache-2.0
// The rows of a leaderboard's table by what the data set says of its samples: LongBench-E's buckets
// of length, the depth of a needle against the length of the context.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "reports/leaderboard.h"
#include "reports/store.h"

namespace kvgauge {

struct SplitScore {
  int64_t samples = 0;
  double score = std::numeric_limits<double>::quiet_NaN();     // of a group the mean over its tasks
  double reported = std::numeric_limits<double>::quiet_NaN();  // as LeaderboardLine::reported
};

struct LeaderboardSplit {
  std::vector<std::string> keys;                 // one or two facts of samples
  std::vector<std::vector<std::string>> values;  // of each key; as numbers where all are
  // Beside the table's lines: [values of the first key][values of the second].
  std::vector<std::vector<SplitScore>> lines;

  bool empty() const { return values.empty() || values[0].empty(); }
};

// Beside the model's tables. `keys`: one or two; none: what each task reports by. Tables whose
// samples say nothing of a key get an empty split. Precondition: the model is of these stores.
Result<std::vector<LeaderboardSplit>> SplitLeaderboard(std::span<ResultStore* const> stores,
                                                       const LeaderboardModel& model,
                                                       const std::vector<std::string>& keys);

}  // namespace kvgauge
