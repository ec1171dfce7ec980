// SPDX-License-Identifier: Apache-2.0
// What a deployer asks of a served trace: throughput, and percentiles of waiting.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/serve/serve_loop.h"

namespace kvgauge {

struct ServePercentiles {
  double p50 = 0, p90 = 0, p99 = 0;

  // Interpolated linearly between neighbours; zeros of no value.
  static ServePercentiles Of(std::vector<double> values);
};

struct ServeMetrics {
  int64_t served = 0, failed = 0;
  int64_t tokens_in = 0, tokens_out = 0;  // of the served requests
  double tokens_per_s = 0;                // of answers, over the whole time but where nobody was
  ServePercentiles ttft_s;                // from arrival to the first token
  ServePercentiles tpot_s;                // between tokens, mean of each request of two or more
  ServePercentiles e2e_s;                 // from arrival to the last token
  int64_t preemptions = 0;
  int64_t shared_tokens = 0;
};
ServeMetrics MeasureServed(const ServeOutcome& outcome);

}  // namespace kvgauge
