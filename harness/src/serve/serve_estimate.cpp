// SPDX-License-Identifier: Apache-2.0
#include "src/serve/serve_estimate.h"

#include <algorithm>

namespace kvgauge {

Status ServeEstimate::Start(int64_t request, std::span<const TokenRun> runs,
                            const Payload& /*payload*/, int64_t tokens, bool /*kept*/) {
  Sequence& s = sequences_[request];
  s.prompt = 0;
  for (const TokenRun& run : runs) s.prompt += run.tokens;
  s.tokens = tokens;
  return {};
}

std::vector<Status> ServeEstimate::Pass(std::span<const ServeStep> steps) {
  double rows = 0, bytes = cost_.weight_bytes;
  for (const ServeStep& step : steps) {
    Sequence& s = sequences_[step.request];
    bytes += static_cast<double>(HeldBy(s));
    s.tokens += step.rows;
    rows += static_cast<double>(step.rows);
  }
  now_s_ += std::max(bytes / rates_.bytes_per_s,
                     rows * cost_.operations_per_row / rates_.operations_per_s);
  return std::vector<Status>(steps.size());
}

ServeWorker::Payload ServeEstimate::TakePrompt(int64_t /*request*/) {
  static const Payload any = std::make_shared<int>(0);
  return any;
}
ServeWorker::Payload ServeEstimate::TakeWhole(int64_t request) { return TakePrompt(request); }

Result<ServeWorker::Payload> ServeEstimate::Cut(const Payload& payload, int64_t /*tokens*/) {
  return payload;
}

void ServeEstimate::Drop(int64_t request) { sequences_.erase(request); }

// At the rate of memory: an optimistic bus.
Result<int64_t> ServeEstimate::Save(int64_t request) {
  const int64_t bytes = HeldBy(sequences_[request]);
  now_s_ += static_cast<double>(bytes) / rates_.bytes_per_s;
  return bytes;
}

Status ServeEstimate::Restore(int64_t request) {
  now_s_ += static_cast<double>(HeldBy(sequences_[request])) / rates_.bytes_per_s;
  return {};
}

Result<int64_t> ServeEstimate::Finish(int64_t request, bool keep) {
  const Sequence s = sequences_[request];
  sequences_.erase(request);
  return keep ? HeldBy(s) : 0;
}

}  // namespace kvgauge
