// SPDX-License-Identifier: Apache-2.0
#include "runner/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/check.h"

namespace kvgauge {

Sampler::Sampler(const SamplingOptions& options, uint64_t stream, int64_t valid_vocab)
    : options_(options), valid_vocab_(valid_vocab), rng_(options.seed, stream) {}

int32_t Sampler::Next(std::span<const float> logits) {
  KVG_CHECK(!options_.greedy(), "nothing is drawn at temperature 0");
  if (valid_vocab_ > 0 && valid_vocab_ < static_cast<int64_t>(logits.size())) {
    logits = logits.first(static_cast<size_t>(valid_vocab_));
  }
  const double most = *std::max_element(logits.begin(), logits.end());
  std::vector<double> mass(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    mass[i] = std::exp((double{logits[i]} - most) / options_.temperature);
  }
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  // Ties by id, so that the draw is the same everywhere.
  const auto likelier = [&](int32_t a, int32_t b) {
    return mass[a] != mass[b] ? mass[a] > mass[b] : a < b;
  };
  const double total = std::accumulate(mass.begin(), mass.end(), 0.0);
  double kept = 0;
  size_t count = 0, sorted = 0;
  while (count < order.size() && (count == 0 || kept < options_.top_p * total)) {
    if (count == sorted) {
      // A nucleus is some tens of a hundred thousand tokens: no more are sorted than it takes.
      constexpr size_t kFirst = 256;
      sorted = std::min(order.size(), std::max(kFirst, 8 * sorted));
      const auto begin = order.begin() + static_cast<std::ptrdiff_t>(count);
      const auto end = order.begin() + static_cast<std::ptrdiff_t>(sorted);
      if (end != order.end()) std::nth_element(begin, end, order.end(), likelier);
      std::sort(begin, end, likelier);
    }
    kept += mass[order[count++]];
  }
  double draw = rng_.NextDouble() * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    draw -= mass[order[i]];
    if (draw < 0) return order[i];
  }
  return order[count - 1];
}

}  // namespace kvgauge
