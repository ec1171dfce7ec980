// SPDX-License-Identifier: Apache-2.0
// Top-k; what goes is merged into the nearest key that stays, key and value alike.
//
// Paper: LOOK-M, arXiv:2406.18139, its form for text; `mode` pivot after KVCache-Factory's
// merge_kv. Needs nothing but scores and keys. With c entries merged into one that stays, pivot
// takes the mean of it and of the c means of itself and each; averaged takes the mean of all,
// weighted the same with each first multiplied by its cosine. The last two merge only what is at
// least as like as the mean of what goes.
#include <algorithm>
#include <string>

#include "methods/merge_list.h"
#include "methods/nearest_key.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class LookM final : public Reducer {
 public:
  explicit LookM(const Params& params) : mode_(params.Text("mode")) {}

  bool merges_keys() const override { return true; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      HeadPlan plan;
      plan.keep = Best(view, Columns(input.scores.Slice(h, h + 1), 0, length), kept);
      const NearestKeys found = NearestKept(view, h, plan.keep);
      if (found.gone.shape[0] > 0) plan.keys = plan.values = Merge(view, found, length);
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  MergeList Merge(LayerView& view, const NearestKeys& found, int64_t length) const {
    Ops& ops = view.ops();
    const int64_t n = found.gone.shape[0];
    const Tensor like = found.likeness.Reshape({1, n});
    // 1 for what is merged, and how many are merged into each.
    const Tensor counted = Filled(view, n, 1.0f), row = counted.Reshape({1, n});
    if (mode_ != "pivot") {
      const Tensor mean = view.Scratch(DType::kF32, {1});
      ops.rows->ReduceRows(like, Reduction::kMean, mean);
      ops.rows->Combine(like, Spread(view, mean, n), Binary::kLess, row);
      ops.rows->Affine(row, -1.0f, 1.0f, row);
    }
    const Tensor all = Filled(view, length, 1.0f), all_row = all.Reshape({1, length});
    ops.select->ScatterAdd(AsColumn(counted), found.nearest, {}, AsColumn(all));
    const Tensor of_target = view.Scratch(DType::kF32, {n});
    ops.select->Gather(AsColumn(all), found.nearest, AsColumn(of_target));

    MergeList list;
    list.from = found.gone;
    list.to = found.nearest;
    list.weight = view.Scratch(DType::kF32, {n});
    const Tensor weight = list.weight.Reshape({1, n});
    ops.rows->Combine(row, of_target.Reshape({1, n}), Binary::kDivide, weight);
    if (mode_ == "weighted") ops.rows->Combine(weight, like, Binary::kMultiply, weight);
    if (mode_ == "pivot") ops.rows->Affine(weight, 0.5f, 0.0f, weight);
    // 1 / (1 + c); with pivot (1 + c / 2) / (1 + c), which is half of that and a half.
    list.self = Filled(view, length, 1.0f);
    const Tensor self = list.self.Reshape({1, length});
    ops.rows->Combine(self, all_row, Binary::kDivide, self);
    if (mode_ == "pivot") ops.rows->Affine(self, 0.5f, 0.5f, self);
    return list;
  }

  std::string mode_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "lookm",
    .paper = "arXiv:2406.18139",
    .summary = "top-k, and what goes is merged into its nearest key that stays, key and value",
    .departures = {"scores say what goes; in the reference pictures go first, as with the score "
                   "visual_h2o",
                   "merges per KV head, not per query head"},
    .params = {ChoiceParam("mode", "pivot", {"pivot", "weighted", "averaged"},
                           "what an entry becomes: the mean of itself and of its means with each, "
                           "or of itself and each as it is or by its likeness")},
    .make = Make<LookM>(),
});

}  // namespace
}  // namespace kvgauge
