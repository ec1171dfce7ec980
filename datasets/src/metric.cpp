// SPDX-License-Identifier: Apache-2.0
#include "datasets/metric.h"

#include "datasets/task.h"

namespace kvgauge {

Result<double> SetScore::Add(const MetricInput& input) {
  if (metric_->of_set) {
    set_.push_back(input);
    ++count_;
    return 0.0;
  }
  KVG_ASSIGN(const double score, metric_->score(input));
  if (metric_->parts) {
    KVG_ASSIGN(const std::vector<double> parts, metric_->parts(input));
    sums_.resize(parts.size());
    for (size_t i = 0; i < parts.size(); ++i) sums_[i] += parts[i];
  }
  if (metric_->of_group) groups_[input.group].push_back(score);
  sum_ += score;
  ++count_;
  return score;
}

bool LowerIsBetter(const std::string& metric) {
  if (metric == kPerplexityMetric) return true;
  const MetricSpec* const spec = FindMetric(metric);
  return spec != nullptr && spec->lower_is_better;
}

double SetScore::Value(double scale) const {
  if (count_ == 0) return 0;
  if (metric_->of_set) return scale * metric_->of_set(set_);
  if (metric_->of_group) {
    double sum = 0;
    for (const auto& [name, scores] : groups_) sum += metric_->of_group(scores);
    return scale * sum / static_cast<double>(groups_.size());
  }
  return metric_->combine ? scale * metric_->combine(sums_)
                          : scale * sum_ / static_cast<double>(count_);
}

}  // namespace kvgauge
