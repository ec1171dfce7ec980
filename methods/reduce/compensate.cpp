// SPDX-License-Identifier: Apache-2.0
// Top-k; one more entry holds the mean of all that goes, and attention counts it as often as that.
//
// Paper: RazorAttention, arXiv:2407.15891 (its compensation token). Needs nothing but scores. The
// first entry that goes takes the place: its key and value become the means over all that go, and
// the logarithm of their number is added to its score. It is one of the entries that a head may
// hold. Departures: keys are averaged as attention sees them, after rotation; the prompt alone.
#include <algorithm>
#include <cmath>

#include "methods/merge_list.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Compensate final : public Reducer {
 public:
  explicit Compensate(const Params&) {}

  bool merges_keys() const override { return true; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      const Tensor scores = Columns(input.scores.Slice(h, h + 1), 0, length);
      HeadPlan plan;
      if (input.step > 0 || kept == length || kept <= CountForced(view, scores)) {
        plan.keep = Best(view, scores, kept);
      } else {
        Stand(view, scores, kept, plan);
      }
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  static void Stand(LayerView& view, const Tensor& scores, int64_t kept, HeadPlan& plan) {
    Ops& ops = view.ops();
    const int64_t length = scores.shape[1], gone = length - kept + 1;
    const Tensor best = Best(view, scores, kept - 1), rest = Complement(view, best, length);
    const Tensor stays = view.Scratch(DType::kF32, {length, 1});
    const Tensor ones = AsColumn(Filled(view, length, 1.0f)), slot = rest.Slice(0, 1);
    ops.select->Scatter(ones.Slice(0, kept - 1), best, stays);
    ops.select->Scatter(ones.Slice(0, 1), slot, stays);
    plan.keep = Best(view, stays.Reshape({1, length}), kept);

    MergeList list;
    list.from = rest.Slice(1, gone);
    list.to = view.Scratch(DType::kI32, {gone - 1});
    const Tensor first = view.Scratch(DType::kI32, {gone - 1});  // zeros
    ops.select->Gather(AsColumn(slot), first, AsColumn(list.to));
    list.weight = Filled(view, gone - 1, 1.0f);
    NormalizeMerge(view, length, list);
    plan.keys = plan.values = list;

    const Tensor more = view.Scratch(DType::kF32, {length, 1});
    const float log_count = std::log(static_cast<float>(gone));
    ops.select->Scatter(AsColumn(Filled(view, 1, log_count)), slot, more);
    plan.log_weight = view.Scratch(DType::kF32, {kept});
    ops.select->Gather(more, plan.keep, AsColumn(plan.log_weight));
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "compensate",
    .paper = "arXiv:2407.15891",
    .summary = "top-k, and one entry stands for all that goes",
    .departures = {"keys are averaged after rotation", "the prompt alone"},
    .make = Make<Compensate>(),
});

}  // namespace
}  // namespace kvgauge
