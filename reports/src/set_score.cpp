// SPDX-License-Identifier: Apache-2.0
#include "reports/set_score.h"

#include <cmath>
#include <limits>

#include "core/check.h"

namespace kvgauge {

std::vector<double> SetValues(const std::vector<double>& parts, size_t size, const SumScore& score,
                              const std::vector<bool>& use) {
  KVG_CHECK(size > 0 && parts.size() % size == 0, "whole vectors of parts");
  const size_t samples = parts.size() / size;
  std::vector<double> values(samples, std::numeric_limits<double>::quiet_NaN());
  std::vector<size_t> members;
  std::vector<double> sums(size, 0.0);
  for (size_t i = 0; i < samples; ++i) {
    if (std::isnan(parts[i * size]) || (!use.empty() && !use[i])) continue;
    members.push_back(i);
    for (size_t k = 0; k < size; ++k) sums[k] += parts[i * size + k];
  }
  if (members.empty()) return values;
  const double whole = score(sums);
  // What is left of a set of one has no score.
  const auto others = static_cast<double>(members.size() - 1);
  double mean = 0;
  std::vector<double> left(size);
  for (const size_t i : members) {
    values[i] = 0;
    if (members.size() > 1) {
      for (size_t k = 0; k < size; ++k) left[k] = sums[k] - parts[i * size + k];
      values[i] = others * (whole - score(left));
    }
    mean += values[i] / static_cast<double>(members.size());
  }
  for (const size_t i : members) values[i] += whole - mean;
  return values;
}

}  // namespace kvgauge
