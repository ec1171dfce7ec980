// SPDX-License-Identifier: Apache-2.0
// Layers share the budget by where the best entries of the whole model are.
//
// Paper: DynamicKV, arXiv:2412.14838. Needs the scores. With B entries beside the protected ones in
// each of H heads of L layers, the best L * H * B of all are counted by layer; a layer's share is
// its count, spread evenly over its heads, but at most `most` times B.
#include <algorithm>
#include <cmath>

#include "methods/registry.h"
#include "methods/split_by_weight.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class DynamicKv final : public Allocator {
 public:
  explicit DynamicKv(const Params& params) : most_(params.Real("most")) {}

  bool needs_scores() const override { return true; }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers, kept = input.protected_entries;
    const int64_t base = std::min(input.per_head, input.length) - kept;
    const auto heads = static_cast<size_t>(input.shape->kv_heads);
    if (base + kept == input.length) {
      return Allocation(static_cast<size_t>(layers), std::vector<int64_t>(heads, input.length));
    }
    const auto limit = static_cast<int64_t>(std::ceil(most_ * static_cast<double>(base)));
    const std::vector<int64_t> shares = SplitByWeight(
        BestByLayer(input, base + kept), layers * base, 0, std::min(limit, input.length - kept));
    Allocation allocation;
    for (const int64_t share : shares) allocation.emplace_back(heads, share + kept);
    return allocation;
  }

 private:
  // How many of the best entries that the budget has room for each layer holds, protected ones left
  // out: they score +inf everywhere.
  static std::vector<double> BestByLayer(const AllocationInput& input, int64_t per_head) {
    LayerView& view = *input.views[0];
    Ops& ops = view.ops();
    const int64_t layers = input.shape->layers, heads = input.shape->kv_heads;
    const int64_t per_layer = heads * input.length, best = layers * heads * per_head;
    const Tensor all = view.Scratch(DType::kF32, {layers, per_layer});
    for (int64_t l = 0; l < layers; ++l) {
      // Scores of a layer may lie on another device.
      ops.memory->Copy(input.scores[l], all[l].Reshape({heads, input.length}));
    }
    const auto count = static_cast<int32_t>(best);
    const Tensor index = view.Scratch(DType::kI32, {best});
    ops.select->TopK(all.Reshape({1, layers * per_layer}), Upload(view, std::span(&count, 1)),
                     index.Reshape({1, best}));
    const Tensor chosen = view.Scratch(DType::kF32, {layers, per_layer});
    ops.select->Scatter(AsColumn(Filled(view, best, 1.0f)), index,
                        chosen.Reshape({layers * per_layer, 1}));
    const Tensor sums = view.Scratch(DType::kF32, {layers});
    ops.rows->ReduceRows(chosen, Reduction::kSum, sums);
    std::vector<double> counts;
    for (const float sum : Fetch(ops, sums)) {
      counts.push_back(double{sum} - static_cast<double>(heads * input.protected_entries));
    }
    return counts;
  }

  double most_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "dynamickv",
    .paper = "arXiv:2412.14838",
    .summary = "layers share the budget by where the model's best entries are",
    .departures = {"all layers are counted at once, without the trims on the way",
                   "the sum over layers is exactly the budget"},
    .params = {RealParam("most", 10, 1, 1e6, "no layer gets more than this many times the mean")},
    .make = Make<DynamicKv>(),
});

}  // namespace
}  // namespace kvgauge
