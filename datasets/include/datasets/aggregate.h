// SPDX-License-Identifier: Apache-2.0
// Scores of many scores, where the published average is not the plain mean over samples.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace kvgauge {

// MLVU's generation tasks: two grades of 1 to 5 each, which the published code adds up.
struct GradePair {
  double first = 0, second = 0;
};
// The mean of the sums, on the scale 2 to 10; 0 for none.
double MeanGradeSum(const std::vector<GradePair>& grades);

// Grades of one answer: the reference's and the model's.
struct RelativeGrade {
  double reference = 0, model = 0;
};
// LLaVA-Bench's relative score: the ratio of the mean grades, not the mean of the ratios; 0 where
// the reference has none. 1 is as good as the reference.
double RelativeScore(const std::vector<RelativeGrade>& grades);

// The chance that one of k samples, drawn from n of which `right` pass, passes. 0 <= right <= n,
// 1 <= k <= n.
double PassAtK(int64_t n, int64_t right, int64_t k);

}  // namespace kvgauge
