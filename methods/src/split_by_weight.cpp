// SPDX-License-Identifier: Apache-2.0
#include "methods/split_by_weight.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"

namespace kvgauge {
namespace {

// Shares of `total` in [least, most], proportional among those that no bound holds.
std::vector<double> Bounded(std::span<const double> weights, double total, double least,
                            double most) {
  const size_t size = weights.size();
  std::vector<double> shares(size);
  std::vector<bool> held(size, false);
  double left = total;
  // Each round holds those furthest out on the side that costs more, or is the last one.
  for (size_t round = 0; round <= size; ++round) {
    double weight = 0;
    size_t open = 0;
    for (size_t i = 0; i < size; ++i) {
      if (held[i]) continue;
      weight += weights[i];
      ++open;
    }
    if (open == 0) break;
    double above = 0, below = 0;
    for (size_t i = 0; i < size; ++i) {
      if (held[i]) continue;
      shares[i] = weight > 0 ? left * weights[i] / weight : left / static_cast<double>(open);
      above += std::max(0.0, shares[i] - most);
      below += std::max(0.0, least - shares[i]);
    }
    if (above == 0 && below == 0) break;
    for (size_t i = 0; i < size; ++i) {
      if (held[i]) continue;
      const bool hold = above >= below ? shares[i] >= most : shares[i] <= least;
      if (!hold) continue;
      shares[i] = above >= below ? most : least;
      held[i] = true;
      left -= shares[i];
    }
  }
  return shares;
}

}  // namespace

std::vector<int64_t> SplitByWeight(std::span<const double> weights, int64_t total, int64_t least,
                                   int64_t most) {
  const auto size = static_cast<int64_t>(weights.size());
  KVG_CHECK(least * size <= total && total <= most * size, "a total that no shares can sum to");
  const std::vector<double> shares = Bounded(weights, static_cast<double>(total),
                                             static_cast<double>(least), static_cast<double>(most));
  std::vector<int64_t> whole(weights.size());
  int64_t left = total;
  for (size_t i = 0; i < whole.size(); ++i) {
    // A share that is whole but for rounding counts as whole.
    whole[i] = std::clamp(static_cast<int64_t>(std::floor(shares[i] + 1e-9)), least, most);
    left -= whole[i];
  }
  std::vector<size_t> order(whole.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto remainder = [&](size_t i) { return shares[i] - static_cast<double>(whole[i]); };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return remainder(a) > remainder(b) + 1e-9; });
  while (left > 0) {
    for (const size_t i : order) {
      if (left == 0) break;
      if (whole[i] == most) continue;
      ++whole[i];
      --left;
    }
  }
  return whole;
}

Allocation SplitLayersByWeight(const AllocationInput& input, std::span<const double> weights,
                               double floor) {
  const auto layers = std::ssize(weights);
  const int64_t length = input.length, kept = input.protected_entries;
  const int64_t per_head = std::min(input.per_head, length);
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto most = static_cast<double>(length - kept), open = static_cast<double>(per_head - kept);
  const double least = std::min(floor * static_cast<double>(length), open);
  std::vector<double> shares;
  for (const double weight : weights) {
    const double by_need = all > 0 ? weight / all * static_cast<double>(layers) * open : open;
    shares.push_back(std::clamp(by_need, least, most));
  }
  Allocation allocation;
  for (const int64_t entries : SplitByWeight(shares, layers * (per_head - kept),
                                             static_cast<int64_t>(least), length - kept)) {
    allocation.emplace_back(static_cast<size_t>(input.shape->kv_heads), entries + kept);
  }
  return allocation;
}

}  // namespace kvgauge
