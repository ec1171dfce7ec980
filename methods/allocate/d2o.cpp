// SPDX-License-Identifier: Apache-2.0
// Layers whose attention is spread evenly hold more entries.
//
// Paper: D2O, arXiv:2406.13035. Needs the column sums of prompt attention: a layer's F is the
// variance of each head's sums over the entries, scaled to [0, 1] over its heads and averaged;
// layers share the budget by softmax(-F).
// Of 32 layers, as the reference's models have, the first two and the last stay whole; of other
// numbers the same share.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/split_by_weight.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class LayerShares final : public Allocator {
 public:
  explicit LayerShares(const Params& params)
      : whole_first_(params.Real("whole_first")),
        whole_last_(params.Real("whole_last")),
        compat_(params.Bool("compat")) {}

  Needs needs() const override { return {.column_sums = true}; }

  Status CheckBudget(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers;
    if (input.per_head >= input.length) return {};
    const int64_t whole =
        std::min(layers, Whole(whole_first_, layers) + Whole(whole_last_, layers));
    const int64_t shared = layers - whole;
    const int64_t left = layers * input.per_head - whole * input.length;
    const int64_t least = shared * std::max<int64_t>(1, input.protected_entries);
    if (shared > 0 && (compat_ || left >= least)) return {};
    return BadInput(StrCat(whole, " of ", layers,
                           " layers stay whole, which leaves the others too little of ",
                           input.per_head, " entries a head of ", input.length,
                           "; raise the budget, lower allocate.whole_first and "
                           "allocate.whole_last, or set allocate.compat"));
  }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    KVG_TRY(CheckBudget(input));
    const int64_t layers = input.shape->layers, length = input.length;
    const auto heads = static_cast<size_t>(input.shape->kv_heads);
    Allocation allocation(static_cast<size_t>(layers), std::vector<int64_t>(heads, length));
    if (input.per_head >= length) return allocation;
    // weights[l] = exp(-F), 0 for whole layers.
    std::vector<double> weights;
    std::vector<int64_t> shared;
    const int64_t first = Whole(whole_first_, layers), last = Whole(whole_last_, layers);
    for (int64_t l = 0; l < layers; ++l) {
      weights.push_back(std::exp(-Spread(*input.views[l])));
      if (l >= first && l < layers - last) shared.push_back(l);
    }
    std::vector<int64_t> entries;
    if (compat_) {
      double all = 0;
      for (const double w : weights) all += w;
      const double ratio = static_cast<double>(input.per_head) / static_cast<double>(length);
      for (const int64_t l : shared) {
        const double share =
            std::clamp(static_cast<double>(layers) * ratio * weights[l] / all, 0.01, 1.0);
        entries.push_back(std::max(input.protected_entries,
                                   static_cast<int64_t>(share * static_cast<double>(length))));
      }
    } else {
      const auto count = static_cast<int64_t>(shared.size());
      const int64_t left = layers * input.per_head - (layers - count) * length;
      std::vector<double> open;
      for (const int64_t l : shared) open.push_back(weights[l]);
      entries = SplitByWeight(open, left, input.protected_entries, length);
    }
    for (size_t i = 0; i < shared.size(); ++i) {
      allocation[shared[i]].assign(heads, entries[i]);
    }
    return allocation;
  }

 private:
  // Layers that a share of the depth is, to the nearest.
  static int64_t Whole(double share, int64_t layers) {
    return std::llround(share * static_cast<double>(layers));
  }

  static double Spread(LayerView& view) {
    Ops& ops = view.ops();
    const Tensor sums = view.ColumnSums();
    const int64_t heads = sums.shape[0], n = sums.shape[1];
    Tensor means = view.Scratch(DType::kF32, {heads});
    ops.rows->ReduceRows(sums, Reduction::kMean, means);
    Tensor centred = view.Scratch(DType::kF32, {heads, n});
    const std::vector<float> mean = Fetch(ops, means);
    for (int64_t h = 0; h < heads; ++h) {
      ops.rows->Affine(sums.Slice(h, h + 1), 1.0f, -mean[h], centred.Slice(h, h + 1));
    }
    ops.rows->ReduceRows(centred, Reduction::kSumSquares, means);
    const std::vector<float> spread = Fetch(ops, means);
    const auto [least, most] = std::minmax_element(spread.begin(), spread.end());
    if (*most == *least) return 0;
    double total = 0;
    for (const float v : spread) total += double{v - *least} / double{*most - *least};
    return total / static_cast<double>(heads);
  }

  double whole_first_, whole_last_;
  bool compat_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "d2o",
    .version = 2,
    .paper = "arXiv:2406.13035",
    .summary = "layers with evenly spread attention hold more",
    .departures = {"layers that stay whole count in the budget, and while decoding they hold what "
                   "the prompt gave them; with compat they do not count",
                   "of other depths than 32 the same share of the layers stays whole; the released "
                   "code leaves the first two and the last whole at every depth"},
    .params = {RealParam("whole_first", 0.0625, 0, 1,
                         "share of the layers that are first and stay whole: 2 of 32"),
               RealParam("whole_last", 0.03125, 0, 1,
                         "share of the layers that are last and stay whole: 1 of 32"),
               BoolParam("compat", false,
                         "share as the reference does, whose sum is not the budget")},
    .make = Make<LayerShares>(),
});

}  // namespace
}  // namespace kvgauge
