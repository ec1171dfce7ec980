// SPDX-License-Identifier: Apache-2.0
// Layers whose attention is spread wide hold more.
//
// Paper: MEDA, arXiv:2502.17599; after AIoT-MLSys-Lab/MEDA. Needs the attention of all rows. A
// layer's entropy is that of its rows' weights, summed over rows, mean over query heads, by row.
// What is not protected is divided as a softmax of the entropies.
#include <algorithm>
#include <cmath>

#include "methods/registry.h"
#include "methods/split_by_weight.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Meda final : public Allocator {
 public:
  explicit Meda(const Params& params) : rows_(params.Int("window")), floor_(params.Real("floor")) {}

  Needs needs() const override { return {.window = rows_}; }
  bool evens_heads() const override { return true; }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers, length = input.length;
    const int64_t per_head = std::min(input.per_head, length);
    const auto heads = static_cast<size_t>(input.shape->kv_heads);
    if (per_head == length || per_head == input.protected_entries) {
      return Allocation(static_cast<size_t>(layers), std::vector<int64_t>(heads, per_head));
    }
    std::vector<double> entropies;
    for (LayerView* view : input.views) entropies.push_back(Entropy(*view));
    const double most = *std::max_element(entropies.begin(), entropies.end());
    for (double& entropy : entropies) entropy = std::exp(entropy - most);
    return SplitLayersByWeight(input, entropies, floor_);
  }

 private:
  double Entropy(LayerView& view) const {
    RowOps& ops = *view.ops().rows;
    const int64_t heads = view.shape().query_heads, n = view.width();
    const Tensor attention = view.WindowAttention(std::min(rows_, n));
    const int64_t rows = attention.shape[1];  // of a turn fewer than asked for
    const Tensor weights = view.Scratch(DType::kF32, {rows, n});
    const Tensor logs = view.Scratch(DType::kF32, {rows, n});
    const Tensor sums = view.Scratch(DType::kF32, {rows}), sum = view.Scratch(DType::kF32, {1});
    double total = 0;
    for (int64_t h = 0; h < heads; ++h) {
      // The reference's bound, under which a logarithm would have no end.
      ops.Fill(1e-12f, weights);
      ops.Combine(attention[h], weights, Binary::kMax, weights);
      ops.Activate(weights, Activation::kLog, logs);
      ops.Combine(weights, logs, Binary::kMultiply, logs);
      ops.ReduceRows(logs, Reduction::kSum, sums);
      ops.ReduceRows(sums.Reshape({1, rows}), Reduction::kSum, sum);
      total -= double{Fetch(view.ops(), sum)[0]};
    }
    return total / static_cast<double>(heads) / static_cast<double>(rows);
  }

  int64_t rows_;
  double floor_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "meda",
    .paper = "arXiv:2502.17599",
    .summary = "layers whose rows spread their attention wide hold more",
    .departures = {"the sum over layers is exactly the budget, where the reference cuts each "
                   "layer's entries to a whole number",
                   "what is protected is the same in all layers; the reference protects half of "
                   "what a layer holds, or as many entries as the prompt has of text",
                   "of a prompt longer than `window`, its last rows"},
    .params = {IntParam("window", 4096, 1, 4096, "most rows whose attention is looked at"),
               RealParam("floor", 0.01, 0, 1,
                         "share of the prompt that a layer gets at least, beside what is "
                         "protected")},
    .make = Make<Meda>(),
});

}  // namespace
}  // namespace kvgauge
