// SPDX-License-Identifier: Apache-2.0
// Comparing sequences: longest common subsequences 64 columns at a time, edit distance, and
// difflib's idea of a match.
#pragma once

#include <cstdint>
#include <vector>

#include "metrics/text.h"

namespace kvgauge::metrics {

// Length of the longest common subsequence.
int64_t LcsLength(const std::vector<int>& x, const std::vector<int>& y);

struct LcsMatch {
  int x = 0, y = 0;  // positions of equal elements
};
// One longest common subsequence, last match first. If there are several, it is the one found by
// walking back from both ends and stepping back in x where that keeps strictly more, else in y.
// Needs |x| * |y| / 8 bytes.
std::vector<LcsMatch> LcsMatches(const std::vector<int>& x, const std::vector<int>& y);

// Levenshtein's distance in code points.
int64_t EditDistance(TextView a, TextView b);

// fuzzywuzzy's fuzz.ratio without python-Levenshtein: 0..100, through difflib's SequenceMatcher
// with its rule that characters frequent in a long `b` begin no match.
int FuzzRatio(TextView a, TextView b);
// fuzz.ratio where python-Levenshtein is installed: 0..100, twice the longest common subsequence by
// the sum of both lengths.
int FuzzRatioLevenshtein(TextView a, TextView b);

}  // namespace kvgauge::metrics
