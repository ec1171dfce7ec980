// SPDX-License-Identifier: Apache-2.0
#include "src/serve/serve_metrics.h"

#include <algorithm>
#include <cmath>

namespace kvgauge {

ServePercentiles ServePercentiles::Of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  return {at(0.5), at(0.9), at(0.99)};
}

ServeMetrics MeasureServed(const ServeOutcome& outcome) {
  ServeMetrics metrics;
  std::vector<double> ttft_s, tpot_s, e2e_s;
  for (const ServedRequest& request : outcome.requests) {
    metrics.preemptions += request.preemptions;
    if (!request.failure.empty()) {
      ++metrics.failed;
      continue;
    }
    if (!request.served) continue;  // the run was cancelled before
    ++metrics.served;
    metrics.tokens_in += request.prompt_tokens;
    metrics.tokens_out += request.answer_tokens;
    metrics.shared_tokens += request.shared_tokens;
    ttft_s.push_back(request.first_s - request.arrived_s);
    e2e_s.push_back(request.last_s - request.arrived_s);
    if (request.answer_tokens > 1) {
      tpot_s.push_back((request.last_s - request.first_s) /
                       static_cast<double>(request.answer_tokens - 1));
    }
  }
  if (outcome.served_s > 0) {
    metrics.tokens_per_s = static_cast<double>(metrics.tokens_out) / outcome.served_s;
  }
  metrics.ttft_s = ServePercentiles::Of(std::move(ttft_s));
  metrics.tpot_s = ServePercentiles::Of(std::move(tpot_s));
  metrics.e2e_s = ServePercentiles::Of(std::move(e2e_s));
  return metrics;
}

}  // namespace kvgauge
