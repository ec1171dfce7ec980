// SPDX-License-Identifier: Apache-2.0
#include "src/results/set_scores.h"

#include <cmath>

#include "datasets/metric.h"
#include "datasets/task.h"

namespace kvgauge {
namespace {

// Nats and tokens, as run_record.cpp writes them.
double PerplexityOf(const std::vector<double>& sums) {
  return sums.size() == 2 && sums[1] > 0 ? std::exp(sums[0] / sums[1]) : 0;
}

}  // namespace

SumScores KnownSetScores() {
  return [](const std::string& metric) -> SumScore {
    if (metric == kPerplexityMetric) return PerplexityOf;
    const MetricSpec* spec = FindMetric(metric);
    return spec != nullptr ? SumScore(spec->combine) : SumScore();
  };
}

}  // namespace kvgauge
