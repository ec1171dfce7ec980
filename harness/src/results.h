// SPDX-License-Identifier: Apache-2.0
// The commands that read what was run. They open stores for reading only and never touch a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct LeaderboardFlags {
  std::vector<std::string> stores;
  std::string by = "task";
  std::string sort;
  std::vector<std::string> filters;
  std::vector<std::string> columns;
  std::string format = "table";
  double alpha = 0.05;
  double margin = 0.01;
  uint64_t seed = 0;
  int64_t resamples = 2000;
  bool all = false;  // also rows without a rank
  bool json = false;
};

Status RunLeaderboard(const LeaderboardFlags& flags);

}  // namespace kvgauge
