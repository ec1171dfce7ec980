// SPDX-License-Identifier: Apache-2.0
// Layers that look at the first and the last entries alone hold no others; all other layers stay
// whole.
//
// Paper: SimLayerKV, arXiv:2410.13846. Needs the attention of the last `window` prompt rows. A
// layer is lazy by the share of that attention, averaged over rows and query heads, that goes to
// the first `sinks` and the last `recent` entries. A lazy layer holds these, one of the last less,
// since the next token takes its place; with the scorer recency and `sinks` protected.
// Laziest layers first is the reference at a threshold between two layers.
#include <algorithm>
#include <numeric>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/split_by_weight.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class SimLayerKv final : public Allocator {
 public:
  explicit SimLayerKv(const Params& params)
      : sinks_(params.Int("sinks")), recent_(params.Int("recent")), window_(params.Int("window")) {}

  Needs needs() const override { return {.window = window_}; }

  Status CheckBudget(const AllocationInput& input) const override {
    const int64_t held = std::max(sinks_ + recent_ - 1, input.protected_entries);
    if (input.per_head >= std::min(input.length, held)) return {};
    return BadInput(StrCat("lazy layers hold ", held, " entries a head, and the budget gives ",
                           input.per_head, " of ", input.length,
                           "; raise it or lower allocate.recent"));
  }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers, length = input.length;
    const auto heads = static_cast<size_t>(input.shape->kv_heads);
    // Shorter prompts than were planned for may have less room.
    const int64_t held = std::max(sinks_ + recent_ - 1, input.protected_entries);
    const int64_t lazy = std::min(input.per_head, held);
    const int64_t whole = CountWhole(layers, layers * input.per_head, length, lazy);
    Allocation allocation(static_cast<size_t>(layers), std::vector<int64_t>(heads, length));
    if (whole == layers) return allocation;
    std::vector<double> shares;
    for (int64_t l = 0; l < layers; ++l) shares.push_back(Laziness(*input.views[l]));
    std::vector<size_t> order(shares.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return shares[a] > shares[b]; });
    for (int64_t i = 0; i < layers - whole; ++i) {
      allocation[order[static_cast<size_t>(i)]].assign(heads, lazy);
    }
    return allocation;
  }

 private:
  double Laziness(LayerView& view) const {
    RowOps& ops = *view.ops().rows;
    const int64_t n = view.width(), heads = view.shape().query_heads;
    const int64_t sinks = std::min(sinks_, n);
    const Tensor by_head = view.WindowAttention(std::min(window_, n));
    const Tensor attention = by_head.Reshape({heads * by_head.shape[1], n});
    const Tensor mean = view.Scratch(DType::kF32, {1, n}), sums = view.Scratch(DType::kF32, {2});
    ops.ReduceColumns(attention, Reduction::kMean, mean[0]);
    ops.ReduceRows(Columns(mean, 0, sinks), Reduction::kSum, sums.Slice(0, 1));
    ops.ReduceRows(Columns(mean, std::max(sinks, n - recent_), n), Reduction::kSum,
                   sums.Slice(1, 2));
    const std::vector<float> both = Fetch(view.ops(), sums);
    return double{both[0]} + double{both[1]};
  }

  int64_t sinks_, recent_, window_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "simlayerkv",
    .paper = "arXiv:2410.13846",
    .summary = "layers that look at the first and last entries alone hold no others",
    .departures = {"as many layers are lazy as the budget needs, the laziest first, where the "
                   "reference has a threshold for each model",
                   "what does not keep one more layer whole stays unspent",
                   "lazy layers keep what is decoded"},
    .params = {IntParam("sinks", 4, 0, 4096, "first entries that a lazy layer holds"),
               IntParam("recent", 1024, 1, 1 << 20,
                        "last entries that a lazy layer looks at, the next token among them"),
               IntParam("window", 1, 1, 4096, "prompt rows that are looked at")},
    .make = Make<SimLayerKv>(),
});

}  // namespace
}  // namespace kvgauge
