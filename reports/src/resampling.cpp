// SPDX-License-Identifier: Apache-2.0
#include "src/resampling.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/check.h"
#include "core/rng.h"
#include "src/bca.h"
#include "src/distributions.h"

namespace kvgauge {
namespace {

constexpr size_t kLanes = 8;  // columns that one pass over the draws serves

double Total(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Sums over drawn clusters, for many vectors of one length.
class DrawnSums {
 public:
  // Position of the vector in the batch; the same vector again costs nothing.
  size_t Add(const std::vector<double>& values) {
    const auto [at, added] = place_.try_emplace(values, vectors_.size());
    if (added) vectors_.push_back(&at->first);
    return at->second;
  }
  // After this Of() answers.
  void Draw(int64_t resamples, Rng rng) {
    const size_t clusters = vectors_[0]->size();
    const size_t blocks = (vectors_.size() + kLanes - 1) / kLanes;
    std::vector<double> lanes(blocks * clusters * kLanes, 0.0);
    for (size_t v = 0; v < vectors_.size(); ++v) {
      double* const block = lanes.data() + v / kLanes * clusters * kLanes;
      for (size_t c = 0; c < clusters; ++c) block[c * kLanes + v % kLanes] = (*vectors_[v])[c];
    }
    width_ = blocks * kLanes;
    drawn_.assign(static_cast<size_t>(resamples) * width_, 0.0);
    std::vector<uint32_t> picks(clusters);
    for (size_t r = 0; r < static_cast<size_t>(resamples); ++r) {
      for (uint32_t& pick : picks) pick = static_cast<uint32_t>(rng.NextBelow(clusters));
      for (size_t b = 0; b < blocks; ++b) {
        const double* const block = lanes.data() + b * clusters * kLanes;
        double sums[kLanes] = {};
        for (const uint32_t pick : picks) {
          const double* const row = block + size_t{pick} * kLanes;
          for (size_t k = 0; k < kLanes; ++k) sums[k] += row[k];
        }
        std::copy(sums, sums + kLanes, drawn_.data() + r * width_ + b * kLanes);
      }
    }
  }
  double Of(size_t vector, size_t resample) const { return drawn_[resample * width_ + vector]; }

 private:
  std::map<std::vector<double>, size_t> place_;
  std::vector<const std::vector<double>*> vectors_;
  std::vector<double> drawn_;
  size_t width_ = 0;
};

// Value, error and size; the interval is open.
Estimate Describe(const MeanColumn& column) {
  Estimate estimate;
  estimate.samples = column.samples;
  estimate.interval = {-kInfinity, kInfinity};
  double variance = 0;
  for (const MeanColumn::Stratum& s : column.strata) {
    const double m = static_cast<double>(s.sums.size()), count = Total(s.counts);
    const double mean = Total(s.sums) / count;
    estimate.value += s.weight * mean;
    estimate.clusters += static_cast<int64_t>(s.sums.size());
    double squares = 0;
    for (size_t c = 0; c < s.sums.size(); ++c) {
      const double residual = s.sums[c] - mean * s.counts[c];
      squares += residual * residual;
    }
    variance += m > 1 ? s.weight * s.weight * m / (m - 1) * squares / (count * count) : kInfinity;
  }
  estimate.standard_error = std::isfinite(variance) ? std::sqrt(variance) : 0;
  return estimate;
}

bool HasSpread(const MeanColumn& column) {
  return std::ranges::all_of(column.strata, [](const auto& s) { return s.sums.size() > 1; });
}

// Jackknife values over clusters, less their stratum's mean, times its weight.
std::vector<double> Influence(const MeanColumn& column) {
  std::vector<double> all;
  for (const MeanColumn::Stratum& s : column.strata) {
    const double total = Total(s.sums), count = Total(s.counts);
    std::vector<double> left_out;
    for (size_t c = 0; c < s.sums.size(); ++c) {
      left_out.push_back((total - s.sums[c]) / (count - s.counts[c]));
    }
    const double mean = Total(left_out) / static_cast<double>(left_out.size());
    for (const double v : left_out) all.push_back(s.weight * (mean - v));
  }
  return all;
}

// Means of the resamples of every column of `which`.
std::vector<std::vector<double>> DrawMeans(std::span<const MeanColumn> columns,
                                           const std::vector<size_t>& which,
                                           const ResamplingOptions& options) {
  struct Job {
    size_t column = 0, sums = 0, counts = 0;
    double weight = 1;
  };
  struct Batch {
    DrawnSums sums;
    std::vector<Job> jobs;
  };
  std::map<std::pair<size_t, size_t>, Batch> batches;  // (stratum, clusters)
  for (size_t i = 0; i < which.size(); ++i) {
    const MeanColumn& column = columns[which[i]];
    for (size_t s = 0; s < column.strata.size(); ++s) {
      const MeanColumn::Stratum& stratum = column.strata[s];
      Batch& batch = batches[{s, stratum.sums.size()}];
      batch.jobs.push_back(
          {i, batch.sums.Add(stratum.sums), batch.sums.Add(stratum.counts), stratum.weight});
    }
  }
  const auto resamples = static_cast<size_t>(options.resamples);
  std::vector<std::vector<double>> means(which.size(), std::vector<double>(resamples, 0.0));
  for (auto& [key, batch] : batches) {
    batch.sums.Draw(options.resamples, Rng(options.seed, kBootstrapStream + (key.first << 8)));
    for (const Job& job : batch.jobs) {
      for (size_t r = 0; r < resamples; ++r) {
        means[job.column][r] +=
            job.weight * (batch.sums.Of(job.sums, r) / batch.sums.Of(job.counts, r));
      }
    }
  }
  return means;
}

}  // namespace

std::vector<ColumnResult> ResampleMeans(std::span<const MeanColumn> columns,
                                        const ResamplingOptions& options) {
  KVG_CHECK(options.confidence > 0.5 && options.confidence < 1 && options.resamples > 0,
            "confidence above one half, some resamples");
  std::vector<ColumnResult> results;
  std::vector<size_t> drawn;
  for (size_t i = 0; i < columns.size(); ++i) {
    results.push_back({Describe(columns[i]), {-kInfinity, kInfinity}});
    if (results[i].estimate.clusters <= kMaxBootstrapClusters && !columns[i].strata.empty() &&
        HasSpread(columns[i])) {
      drawn.push_back(i);
    }
  }
  std::vector<std::vector<double>> means = DrawMeans(columns, drawn, options);
  const double confidences[] = {options.confidence, 2 * options.confidence - 1};
  for (size_t i = 0, next = 0; i < columns.size(); ++i) {
    Estimate& estimate = results[i].estimate;
    const bool by_draws = next < drawn.size() && drawn[next] == i;
    if (!by_draws && (columns[i].strata.empty() || !HasSpread(columns[i]))) continue;
    Interval* const intervals[] = {&estimate.interval, &results[i].equivalence};
    std::vector<double> influence;
    if (by_draws) {
      influence = Influence(columns[i]);
      std::ranges::sort(means[next]);
    }
    for (int k = 0; k < 2; ++k) {
      const double tail = (1 - confidences[k]) / 2;
      if (by_draws) {
        *intervals[k] = BcaInterval(means[next], estimate.value, Skewness(influence), tail);
      } else {
        const double half = -NormalQuantile(tail) * estimate.standard_error;
        *intervals[k] = {estimate.value - half, estimate.value + half};
      }
      const double least = options.reach * UnseenShare(estimate.clusters, tail);
      intervals[k]->low = std::min(intervals[k]->low, estimate.value - least);
      intervals[k]->high = std::max(intervals[k]->high, estimate.value + least);
    }
    if (by_draws) ++next;
  }
  return results;
}

}  // namespace kvgauge
