// SPDX-License-Identifier: Apache-2.0
// Layers share a budget by their composite entries: the r-th of a layer is made of the r-th best
// entry of each of its heads. All heads of a layer hold as many entries.
//
// Paper: KVCompose, arXiv:2509.05165, the structured form; after kvpress's KVComposePress. Needs
// scores that can be compared across layers.
#include <algorithm>
#include <functional>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Composite final : public Allocator {
 public:
  explicit Composite(const Params&) {}

  bool needs_scores() const override { return true; }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const auto n = static_cast<size_t>(input.length);
    const auto layers = static_cast<size_t>(input.shape->layers);
    const auto heads = static_cast<size_t>(input.shape->kv_heads);
    const auto sure =
        static_cast<size_t>(std::clamp<int64_t>(input.protected_entries, 1, input.length));
    std::vector<std::vector<float>> composite;
    for (size_t l = 0; l < layers; ++l) {
      composite.push_back(MeansByRank(*input.views[l], input.scores[l], heads, n));
    }
    // The first layer is the largest: at every rank as good as the best.
    for (size_t r = 0; r < n; ++r) {
      for (const auto& of_layer : composite)
        composite[0][r] = std::max(composite[0][r], of_layer[r]);
    }
    // Each layer's are descending, so the best of all are the first of each.
    std::vector<size_t> held(layers, std::min(sure, static_cast<size_t>(input.per_head)));
    const size_t total = layers * static_cast<size_t>(std::min(input.per_head, input.length));
    size_t taken = 0;
    for (const size_t count : held) taken += count;
    for (; taken < total; ++taken) {
      size_t best = layers;
      for (size_t l = 0; l < layers; ++l) {
        if (held[l] == n) continue;
        if (best == layers || composite[l][held[l]] > composite[best][held[best]]) best = l;
      }
      ++held[best];
    }
    Allocation allocation;
    for (const size_t count : held) allocation.emplace_back(heads, static_cast<int64_t>(count));
    return allocation;
  }

 private:
  // The mean over heads of their r-th best score, for every r.
  static std::vector<float> MeansByRank(LayerView& view, const Tensor& scores, size_t heads,
                                        size_t n) {
    std::vector<float> all = Fetch(view.ops(), scores);
    std::vector<float> means(n);
    for (size_t h = 0; h < heads; ++h) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(h * n);
      std::sort(begin, begin + static_cast<std::ptrdiff_t>(n), std::greater<>());
      for (size_t r = 0; r < n; ++r) means[r] += all[h * n + r] / static_cast<float>(heads);
    }
    return means;
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "composite",
    .paper = "arXiv:2509.05165",
    .summary = "layers share the budget by the means of their heads' scores at each rank",
    .departures = {"a layer's first entry is within the budget; kvpress adds one to a layer that "
                   "would have none"},
    .make = Make<Composite>(),
});

}  // namespace
}  // namespace kvgauge
