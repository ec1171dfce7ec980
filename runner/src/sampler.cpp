// SPDX-License-Identifier: Apache-2.0
#include "runner/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

namespace kvgauge {

Sampler::Sampler(const SamplingOptions& options, uint64_t stream, int64_t valid_vocab)
    : options_(options), valid_vocab_(valid_vocab), rng_(options.seed, stream) {}

namespace {

// The first of the largest. This is done once a row and step over the whole vocabulary, so whole
// vectors go at a time whatever the optimisation, and several, so that none waits for the last.
size_t Largest(std::span<const float> values) {
  using Lanes [[gnu::vector_size(16)]] = float;
  constexpr size_t kLanes = 4, kChains = 8, kAtOnce = kLanes * kChains;
  // Only the block that holds the maximum is searched.
  constexpr size_t kBlock = 32 * kAtOnce;
  float most = values[0];
  size_t block = 0;
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::span<const float> part =
        values.subspan(begin, std::min(kBlock, values.size() - begin));
    float here = -std::numeric_limits<float>::infinity();
    size_t i = 0;
    if (part.size() >= kAtOnce) {
      Lanes chains[kChains];
      for (Lanes& chain : chains) chain = Lanes{here, here, here, here};
      for (; i + kAtOnce <= part.size(); i += kAtOnce) {
        for (size_t c = 0; c < kChains; ++c) {
          Lanes next;
          std::memcpy(&next, &part[i + c * kLanes], sizeof(next));
          chains[c] = next > chains[c] ? next : chains[c];
        }
      }
      for (const Lanes& chain : chains) {
        for (size_t lane = 0; lane < kLanes; ++lane) here = std::max(here, chain[lane]);
      }
    }
    for (; i < part.size(); ++i) here = std::max(here, part[i]);
    if (!(here > most)) continue;
    most = here;
    block = begin;
  }
  const std::span<const float> rest = values.subspan(block);
  const auto at = std::find(rest.begin(), rest.end(), most);
  return at == rest.end() ? 0 : block + static_cast<size_t>(at - rest.begin());
}

}  // namespace

int32_t Sampler::Next(std::span<const float> logits) {
  if (valid_vocab_ > 0 && valid_vocab_ < static_cast<int64_t>(logits.size())) {
    logits = logits.first(static_cast<size_t>(valid_vocab_));
  }
  const size_t best = Largest(logits);
  if (options_.temperature <= 0.0f) return static_cast<int32_t>(best);

  std::vector<double> mass(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    mass[i] = std::exp((double{logits[i]} - double{logits[best]}) / options_.temperature);
  }
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  // Ties by id, so that the draw is the same everywhere.
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return mass[a] != mass[b] ? mass[a] > mass[b] : a < b; });
  const double total = std::accumulate(mass.begin(), mass.end(), 0.0);
  double kept = 0;
  size_t count = 0;
  while (count < order.size() && (count == 0 || kept < options_.top_p * total)) {
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
