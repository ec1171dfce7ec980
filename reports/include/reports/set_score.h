// SPDX-License-Identifier: Apache-2.0
// Scores of a set that are not the mean of its samples: corpus BLEU, a perplexity over all tokens.
// Each sample records its contribution to a vector of sums, and a function computes the score.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace kvgauge {

using SumScore = std::function<double(const std::vector<double>& sums)>;
// Maps a metric's id to the function of its sums; empty if the score of a set is the mean. The
// store holds metric ids only, so callers pass this table. An empty table means: every score of a
// set is the mean.
using SumScores = std::function<SumScore(const std::string& metric)>;

// One number per sample, whose plain mean is the score of the set and whose spread is that of the
// score: the score plus the sample's influence on it (the infinitesimal jackknife by leaving one
// out, centred). So means, bootstraps and sign flips of them apply to the set's score. `parts`:
// [samples][size]; NaN first: the sample is not in the set, and its number is NaN. `use`: empty, or
// for each sample whether it is in the set; the others get NaN too.
std::vector<double> SetValues(const std::vector<double>& parts, size_t size, const SumScore& score,
                              const std::vector<bool>& use = {});

}  // namespace kvgauge
