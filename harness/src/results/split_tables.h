// SPDX-License-Identifier: Apache-2.0
// A leaderboard's split for people.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/json_fwd.h"
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

// `--split modality`: what rows keep of text, pictures and videos.
inline constexpr const char* kModalitySplit = "modality";

// All cells of a row together.
struct ModalityLine {
  std::vector<ResultStore::ModalityShare> shares;  // by modality
};
// Beside the lines of each of the model's tables. Stores without pictures are an error.
Result<std::vector<std::vector<ModalityLine>>> SplitByModality(std::span<ResultStore* const> stores,
                                                               const LeaderboardModel& model);
std::string ModalityText(const LeaderboardTable& table, const std::vector<ModalityLine>& lines,
                         bool markdown, bool colour);
Json ModalityJson(const LeaderboardTable& table, const std::vector<ModalityLine>& lines);

}  // namespace kvgauge
