// SPDX-License-Identifier: Apache-2.0
#include "datasets/aggregate.h"

#include "core/check.h"

namespace kvgauge {
double MeanGradeSum(const std::vector<GradePair>& grades) {
  double sum = 0;
  for (const GradePair& grade : grades) sum += grade.first + grade.second;
  return grades.empty() ? 0 : sum / static_cast<double>(grades.size());
}

double RelativeScore(const std::vector<RelativeGrade>& grades) {
  double reference = 0, model = 0;
  for (const RelativeGrade& grade : grades) {
    reference += grade.reference;
    model += grade.model;
  }
  return reference != 0 ? model / reference : 0;
}

double PassAtK(int64_t n, int64_t right, int64_t k) {
  KVG_CHECK(0 <= right && right <= n && 1 <= k && k <= n, "pass@k of impossible numbers");
  if (n - right < k) return 1;
  double none = 1;
  for (int64_t i = n - right + 1; i <= n; ++i) {
    none *= 1 - static_cast<double>(k) / static_cast<double>(i);
  }
  return 1 - none;
}

}  // namespace kvgauge
