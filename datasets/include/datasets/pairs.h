// SPDX-License-Identifier: Apache-2.0
// Scoring a file of predictions: one JSON object a line with `prediction` (text), `answers` (a list
// of texts), and optionally `all_classes` (a list of texts or null) and `language`. Other keys are
// left alone, blank lines too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "datasets/metric.h"

namespace kvgauge {

inline constexpr int64_t kMaxPairBytes = int64_t{64} << 20;  // of one line

struct PairScores {
  std::vector<double> scores;
  std::vector<int64_t> lines;          // of each score, from 1
  std::vector<std::string> bad_lines;  // messages, when they are skipped
  double mean = 0;                     // over `scores`
};

// One line. `origin` ("file:line") begins the messages; columns count characters from 1.
Result<MetricInput> ParsePair(const std::string& text, const std::string& origin);

// Reads line by line and never holds more than one. A line that cannot be read or scored is an
// error, or with `skip_bad` left out of the mean. No line left to score is an error.
Result<PairScores> ScorePairs(const MetricSpec& metric, const std::string& path, bool skip_bad);

}  // namespace kvgauge
