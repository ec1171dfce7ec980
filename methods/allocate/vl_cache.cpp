// SPDX-License-Identifier: Apache-2.0
// Layers whose question looks at more of the prompt hold more of it.
//
// Paper: VL-Cache, arXiv:2410.23317; after EffiVLM-Bench's VlCacheKVCluster. Needs the rows behind
// the last picture or video. An entry counts for a row that gives it at least `threshold` of the
// most that the row gives to any. The layer's sparsity is the share of all that the rows can see
// which does not count, mean over query heads. What is not protected is divided by 1 - sparsity.
#include <algorithm>

#include "methods/registry.h"
#include "methods/split_by_weight.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class VlCache final : public Allocator {
 public:
  explicit VlCache(const Params& params)
      : rows_(params.Int("rows")),
        threshold_(static_cast<float>(params.Real("threshold"))),
        floor_(params.Real("floor")) {}

  Needs needs() const override { return {.question_rows = rows_}; }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers, length = input.length;
    const int64_t per_head = std::min(input.per_head, length);
    const auto heads = static_cast<size_t>(input.shape->kv_heads);
    if (per_head == length || per_head == input.protected_entries) {
      return Allocation(static_cast<size_t>(layers), std::vector<int64_t>(heads, per_head));
    }
    std::vector<double> dense;
    for (LayerView* view : input.views) dense.push_back(1 - Sparsity(*view));
    return SplitLayersByWeight(input, dense, floor_);
  }

 private:
  double Sparsity(LayerView& view) const {
    RowOps& ops = *view.ops().rows;
    const int64_t heads = view.shape().query_heads, n = view.width();
    const int64_t rows = std::min(view.QuestionRows(rows_), n);
    const Tensor attention = view.WindowAttention(rows);
    const Tensor limit = view.Scratch(DType::kF32, {rows});
    const Tensor below = view.Scratch(DType::kF32, {rows, n});
    const Tensor counts = view.Scratch(DType::kF32, {rows}), sums = view.Scratch(DType::kF32, {1});
    double missed = 0;  // what is not seen is below the limit as well
    for (int64_t h = 0; h < heads; ++h) {
      ops.ReduceRows(attention[h], Reduction::kMax, limit);
      const Tensor limits = limit.Reshape({1, rows});
      ops.Affine(limits, threshold_, 0.0f, limits);
      ops.Combine(attention[h], Spread(view, limit, n), Binary::kLess, below);
      ops.ReduceRows(below, Reduction::kSum, counts);
      ops.ReduceRows(counts.Reshape({1, rows}), Reduction::kSum, sums);
      missed += double{Fetch(view.ops(), sums)[0]};
    }
    const double unseen = 0.5 * static_cast<double>(rows * (rows - 1));
    const double seen = static_cast<double>(rows * n) - unseen;
    return (missed / static_cast<double>(heads) - unseen) / seen;
  }

  int64_t rows_;
  float threshold_;
  double floor_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "vl_cache",
    .paper = "arXiv:2410.23317",
    .summary = "layers whose question looks at more of the prompt hold more of it",
    .departures = {"the sum over layers is exactly the budget, where the reference cuts each "
                   "layer's entries to a whole number",
                   "of a longer question, its last rows"},
    .params = {IntParam("rows", 256, 1, 4096, "rows of the question that are looked at, at most"),
               RealParam("threshold", 0.01, 0, 1,
                         "share of a row's largest weight from which on an entry counts"),
               RealParam("floor", 0.009, 0, 1,
                         "share of the prompt that a layer gets at least, beside what is "
                         "protected")},
    .make = Make<VlCache>(),
});

}  // namespace
}  // namespace kvgauge
