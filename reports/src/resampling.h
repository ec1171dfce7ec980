// SPDX-License-Identifier: Apache-2.0
// Intervals of many means at once. The draws of a bootstrap depend on the number of clusters and
// the seed alone, so they are made once for all columns; the interval of a column is the same as by
// itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reports/statistics.h"

namespace kvgauge {

// A sum of means, each over its own clusters: weight x sum(sums) / sum(counts) of every stratum.
// One stratum of weight 1 is a mean; a group of T tasks is T strata of weight 1/T.
struct MeanColumn {
  struct Stratum {
    std::vector<double> sums, counts;  // of each cluster; counts are positive
    double weight = 1;
  };
  std::vector<Stratum> strata;
  int64_t samples = 0;
};

struct ColumnResult {
  Estimate estimate;     // at options.confidence
  Interval equivalence;  // at 1 - 2 (1 - options.confidence)
};

// For one stratum equal to MeanInterval. Strata are drawn independently.
std::vector<ColumnResult> ResampleMeans(std::span<const MeanColumn> columns,
                                        const ResamplingOptions& options);

}  // namespace kvgauge
