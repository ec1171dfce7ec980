// SPDX-License-Identifier: Apache-2.0
// A share of a head's entries by their scores; the others by scores times how far the entry's value
// can move the layer's output.
//
// Paper: CriticalKV, arXiv:2502.03805. Needs the output projection, and scores that are like
// probabilities: none negative, of the order that `epsilon` is added to. The size of a value v is
// the sum of absolute numbers of W v, with W what the output projection makes of one query head,
// averaged over the query heads of the KV head. With the allocator ada this is CriticalAdaKV.
#include <algorithm>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Critical final : public Reducer {
 public:
  explicit Critical(const Params& params)
      : first_(params.Real("first")), epsilon_(static_cast<float>(params.Real("epsilon"))) {}

  Needs needs() const override { return {.output_weights = true}; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      const Tensor scores = Columns(input.scores.Slice(h, h + 1), 0, length);
      HeadPlan plan;
      if (kept == length || first_ == 1) {
        plan.keep = Best(view, scores, kept);
      } else {
        plan.keep = Best(view, SecondStage(view, h, scores, kept), kept);
      }
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  // Scores [1, n] after which the best `kept` are what is kept.
  Tensor SecondStage(LayerView& view, int64_t head, const Tensor& scores, int64_t kept) const {
    RowOps& ops = *view.ops().rows;
    const int64_t n = scores.shape[1];
    const Tensor forced = Filled(view, n, kForcedFrom);
    const Tensor free = view.Scratch(DType::kF32, {1, n});
    const Tensor weighed = view.Scratch(DType::kF32, {1, n});
    // What is forced is above all others, which infinity times a size need not be.
    ops.Combine(scores, forced, Binary::kLess, free);
    ops.Combine(scores, forced, Binary::kMin, weighed);
    ops.Combine(weighed, free, Binary::kMultiply, weighed);
    ops.Affine(weighed, 1.0f, epsilon_, weighed);
    ops.Combine(weighed, Sizes(view, head), Binary::kMultiply, weighed);
    ops.Affine(free, -kForcedScore, kForcedScore, free);
    ops.Combine(weighed, free, Binary::kMax, weighed);
    const auto share = static_cast<int64_t>(first_ * static_cast<double>(kept));
    const int64_t sure = first_ > 0 ? std::min(kept, std::max<int64_t>(share, 1)) : 0;
    if (sure > 0) {
      const Tensor high = Filled(view, sure, kForcedScore);
      view.ops().select->Scatter(AsColumn(high), Best(view, scores, sure), weighed.Reshape({n, 1}));
    }
    return weighed;
  }

  // [1, n] sizes of a KV head's values.
  static Tensor Sizes(LayerView& view, int64_t head) {
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const int64_t n = view.lengths()[head], dim = shape.value_dim, width = shape.hidden_size;
    const int64_t group = shape.group();
    const Tensor values = view.Values(head);
    const Tensor moved = view.Scratch(DType::kF32, {kRows, width});
    const Tensor turned = view.Scratch(DType::kF32, {kRows, width});
    const Tensor sizes = view.Scratch(DType::kF32, {group, n});
    for (int64_t g = 0; g < group; ++g) {
      const Tensor weights = view.OutputWeights(head * group + g).Reshape({1, dim, width});
      for (int64_t begin = 0; begin < n; begin += kRows) {
        const int64_t end = std::min(begin + kRows, n), rows = end - begin;
        const Tensor some = moved.Slice(0, rows), other = turned.Slice(0, rows);
        ops.linear->MatMulNN(values.Slice(begin, end).Reshape({1, rows, dim}), weights, 1.0f,
                             some.Reshape({1, rows, width}));
        ops.rows->Affine(some, -1.0f, 0.0f, other);
        ops.rows->Combine(some, other, Binary::kMax, some);
        ops.rows->ReduceRows(some, Reduction::kSum, sizes[g].Slice(begin, end));
      }
    }
    const Tensor mean = view.Scratch(DType::kF32, {1, n});
    ops.rows->ReduceColumns(sizes, Reduction::kMean, mean[0]);
    return mean;
  }

  // Values that are multiplied at once, so that their products take little memory.
  static constexpr int64_t kRows = 256;

  double first_;
  float epsilon_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "critical",
    .paper = "arXiv:2502.03805",
    .summary = "a share by scores, the rest by scores times how far values move the output",
    .departures = {"protected entries stay whatever the second stage says",
                   "with the allocator ada, heads are assured of their number of entries, not of "
                   "the very entries as in kvpress"},
    .params = {RealParam("first", 0.5, 0, 1, "share of a head's entries that scores alone choose"),
               RealParam("epsilon", 1e-4, 0, 1, "added to scores before sizes count")},
    .make = Make<Critical>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
