// SPDX-License-Identifier: Apache-2.0
// What several draws of the answer to each prompt say together.
//
// A draw is a sample of its own (reports/drawn_by.h), so the score of a row is the mean over all
// draws: of right and wrong answers that is pass@1. The numbers here take the draws of a prompt
// together. They are means over prompts, and their intervals draw prompts anew, never draws: the
// draws of one prompt are no independent evidence of the next prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "reports/drawn_by.h"
#include "reports/leaderboard.h"
#include "reports/statistics.h"
#include "reports/store.h"

namespace kvgauge {

// The mean over all choices of k among the scores of the best one: the unbiased estimator of what k
// draws reach. For scores of 1 and 0 it is pass@k, 1 - C(n - c, k) / C(n, k) (Chen et
// al. 2021). Precondition: 1 <= k <= scores.
double BestOfDraws(std::vector<double> scores, int64_t k);

struct DrawnAnswer {
  int64_t draw = 0;
  double score = 0;
  std::string vote;  // "": the answer holds nothing to vote for
};
// The score of the answer that most draws give; of several the one that comes first. Draws without
// a vote count only where no draw has one. Precondition: there are answers, none twice.
double MajorityScore(std::vector<DrawnAnswer> answers);

// The draws of a row. Nothing where some prompt has too few draws with a score.
struct DrawLine {
  int64_t prompts = 0;
  std::vector<std::optional<Estimate>> best;  // beside DrawTable::counts
  std::vector<std::optional<Estimate>> best_versus_full;
  std::optional<Estimate> majority;  // of as many draws as any prompt of the table has
  std::optional<Estimate> majority_versus_full;
};

// Beside a table of the leaderboard.
struct DrawTable {
  DrawnBy drawn;
  int64_t draws = 0;            // of a prompt, at most
  std::vector<int64_t> counts;  // 1, 2, 4, ... and `draws`
  bool right_or_wrong = true;   // all scores are 0 or 1: best of k is pass@k
  bool votes = false;           // some answer votes; without, no line has a majority
  std::vector<DrawLine> lines;  // beside the table's

  bool empty() const { return lines.empty(); }
};

// Beside the model's tables; those of greedy answers get an empty one. Precondition: the model is
// of these stores.
Result<std::vector<DrawTable>> MakeDrawTables(std::span<ResultStore* const> stores,
                                              const LeaderboardModel& model);

}  // namespace kvgauge
