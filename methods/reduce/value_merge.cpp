// SPDX-License-Identifier: Apache-2.0
// Top-k; the value of an entry that goes is added to that of the entry that stays and whose key is
// most like it. Keys stay as they are.
//
// Paper: token merging, arXiv:2210.09461, as kvpress's MergingPress has it. Needs nothing but
// scores, keys and values. An entry that goes weighs its cosine with its nearest key, times the
// length of its value over the sum of both lengths; what it is added to becomes the weighted mean.
// Only cosines of at least `least` count, and of those of a head the `share` that are most alike.
#include <algorithm>

#include "methods/merge_list.h"
#include "methods/nearest_key.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr float kLeastLength = 1e-6f;  // as the reference adds it

class ValueMerge final : public Reducer {
 public:
  explicit ValueMerge(const Params& params)
      : least_(static_cast<float>(params.Real("least"))), share_(params.Real("share")) {}

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      HeadPlan plan;
      plan.keep = Best(view, Columns(input.scores.Slice(h, h + 1), 0, length), kept);
      const NearestKeys found = NearestKept(view, h, plan.keep);
      if (found.gone.shape[0] > 0) plan.values = Merge(view, h, found);
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  MergeList Merge(LayerView& view, int64_t head, const NearestKeys& found) const {
    Ops& ops = view.ops();
    const int64_t length = view.lengths()[head], n = found.gone.shape[0];
    const Tensor like = found.likeness.Reshape({1, n});
    // What passes both gates: 1, else 0.
    const Tensor weight = view.Scratch(DType::kF32, {1, n});
    ops.rows->Combine(like, Filled(view, n, least_), Binary::kLess, weight);
    ops.rows->Affine(weight, -1.0f, 1.0f, weight);
    if (share_ < 1) {
      // Those at or above the quantile 1 - share, which lies between two of them.
      const auto most = static_cast<int64_t>(share_ * static_cast<double>(n - 1)) + 1;
      const Tensor chosen = view.Scratch(DType::kF32, {1, n});
      ops.select->Scatter(AsColumn(Filled(view, most, 1.0f)), Best(view, like, most),
                          chosen.Reshape({n, 1}));
      ops.rows->Combine(weight, chosen, Binary::kMultiply, weight);
    }
    ops.rows->Combine(weight, like, Binary::kMultiply, weight);
    ops.rows->Combine(weight, Filled(view, n, 0.0f), Binary::kMax, weight);

    const Tensor lengths = view.Scratch(DType::kF32, {length});
    ops.rows->ReduceRows(view.Values(head), Reduction::kNorm, lengths);
    const Tensor own = view.Scratch(DType::kF32, {n}), both = view.Scratch(DType::kF32, {n});
    ops.select->Gather(AsColumn(lengths), found.gone, AsColumn(own));
    ops.select->Gather(AsColumn(lengths), found.nearest, AsColumn(both));
    const Tensor own_row = own.Reshape({1, n}), both_row = both.Reshape({1, n});
    ops.rows->Combine(both_row, own_row, Binary::kAdd, both_row);
    ops.rows->Affine(both_row, 1.0f, kLeastLength, both_row);
    ops.rows->Combine(own_row, both_row, Binary::kDivide, own_row);
    ops.rows->Combine(weight, own_row, Binary::kMultiply, weight);

    MergeList list;
    list.from = found.gone;
    list.to = found.nearest;
    list.weight = weight.Reshape({n});
    NormalizeMerge(view, length, list);
    return list;
  }

  float least_;
  double share_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "value_merge",
    .paper = "arXiv:2210.09461",
    .summary = "top-k, and values that go are added to that of the nearest key that stays",
    .params = {RealParam("least", 0, 0, 1, "cosine below which nothing is added"),
               RealParam("share", 1, 0.001, 1, "of what goes, the most alike that are added")},
    .make = Make<ValueMerge>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
