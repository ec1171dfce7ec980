// SPDX-License-Identifier: Apache-2.0
// Scores of a set of samples that are no mean of theirs: corpus BLEU, a perplexity over all tokens.
// Each sample has recorded what it adds to a vector of sums; a function makes the score of them.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace kvgauge {

using SumScore = std::function<double(const std::vector<double>& sums)>;
// Of a metric's id; empty for metrics whose score of a set is the mean. Stores know ids alone, so
// whoever reads them for such scores brings this. Empty itself: every score is a mean.
using SumScores = std::function<SumScore(const std::string& metric)>;

// Numbers beside samples whose plain mean is the score of the set, and whose spread is that
// score's: each is the score plus the sample's influence on it (the infinitesimal jackknife by
// leaving one out, centred). So means, bootstraps and sign flips of them speak of the set's score.
// `parts`: [samples][size]; NaN first: the sample is not of the set, and gets NaN. `use`: empty, or
// for each sample whether it is; others get NaN as well.
std::vector<double> SetValues(const std::vector<double>& parts, size_t size, const SumScore& score,
                              const std::vector<bool>& use = {});

}  // namespace kvgauge
