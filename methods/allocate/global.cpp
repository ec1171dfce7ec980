// SPDX-License-Identifier: Apache-2.0
// All heads of all layers share one budget: each holds as many entries as it has among the best of
// the whole cache.
//
// Paper: as in KVzip, arXiv:2505.23416, and KVCompose, arXiv:2509.05165. Needs scores that can be
// compared across layers. Departures: none.
#include <algorithm>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Global final : public Allocator {
 public:
  explicit Global(const Params&) {}

  bool needs_scores() const override { return true; }

  bool any_time() const override { return true; }
  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers, heads = input.shape->kv_heads, n = input.length;
    const int64_t all = layers * heads * n;
    const int64_t best = layers * heads * std::min(input.per_head, n);
    LayerView& view = *input.views[0];
    Ops& ops = view.ops();
    const Tensor scores = view.Scratch(DType::kF32, {layers * heads, n});
    for (int64_t l = 0; l < layers; ++l) {
      // Scores of a layer may lie on another device.
      ops.memory->Copy(input.scores[static_cast<size_t>(l)],
                       scores.Slice(l * heads, (l + 1) * heads));
    }
    const Tensor index = Best(view, scores.Reshape({1, all}), best);
    const Tensor chosen = view.Scratch(DType::kF32, {layers * heads, n});
    const Tensor counts = view.Scratch(DType::kF32, {layers * heads});
    ops.select->Scatter(AsColumn(Filled(view, best, 1.0f)), index, chosen.Reshape({all, 1}));
    ops.rows->ReduceRows(chosen, Reduction::kSum, counts);
    const std::vector<float> fetched = Fetch(ops, counts);
    Allocation allocation(static_cast<size_t>(layers));
    for (size_t i = 0; i < fetched.size(); ++i) {
      allocation[i / static_cast<size_t>(heads)].push_back(static_cast<int64_t>(fetched[i]));
    }
    return allocation;
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "global",
    .paper = "arXiv:2505.23416",
    .summary = "all heads of all layers share one budget, by where the best entries are",
    .make = Make<Global>(),
});

}  // namespace
}  // namespace kvgauge
