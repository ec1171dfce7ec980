// SPDX-License-Identifier: Apache-2.0
// Each run of entries keeps an equal share of what its head may hold; the last run stays whole.
//
// Paper: LagKV, arXiv:2504.04704. Needs nothing but scores. After the first `sinks` entries come
// runs of `size`; what the budget leaves beside the first entries, the last whole run and what
// follows it goes to the other runs in equal numbers, each to its best. What does not divide goes
// to the best of all that are left. A budget that cannot hold the newest entries is spent by score
// alone.
#include <algorithm>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Above any score that is not forced.
constexpr float kChosen = 1e35f;

class Partitions final : public Reducer {
 public:
  explicit Partitions(const Params& params)
      : sinks_(params.Int("sinks")), size_(params.Int("size")) {}

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    SelectOps& select = *view.ops().select;
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      const auto count = static_cast<int32_t>(kept);
      HeadPlan plan;
      plan.keep = view.Scratch(DType::kI32, {kept});
      const Tensor scores = view.Scratch(DType::kF32, {1, length});
      view.ops().rows->Convert(Columns(input.scores.Slice(h, h + 1), 0, length), scores);
      RaiseShares(view, kept, scores);
      select.TopK(scores, Upload(view, std::span(&count, 1)), plan.keep.Reshape({1, kept}));
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  // scores: [1, length], in place
  void RaiseShares(LayerView& view, int64_t kept, const Tensor& scores) const {
    Ops& ops = view.ops();
    const int64_t length = scores.shape[1], runs = length > sinks_ ? (length - sinks_) / size_ : 0;
    const int64_t open = runs - 1;  // the last run stays whole
    if (open < 1) return;
    const int64_t body = open * size_, share = std::min(size_, (kept - (length - body)) / open);
    if (share < 1) return;
    const Tensor in_runs =
        Columns(scores, sinks_, sinks_ + body).Reshape({body}).Reshape({open, size_});
    const std::vector<int32_t> counts(static_cast<size_t>(open), static_cast<int32_t>(share));
    const Tensor index = view.Scratch(DType::kI32, {open, share});
    ops.select->TopK(in_runs, Upload(view, counts), index);
    const Tensor chosen = view.Scratch(DType::kF32, {open, size_});
    const Tensor raised = AsColumn(Filled(view, share, kChosen));
    for (int64_t p = 0; p < open; ++p) ops.select->Scatter(raised, index[p], AsColumn(chosen[p]));
    ops.rows->Combine(in_runs, chosen, Binary::kMax, in_runs);
    const auto raise = [&](int64_t begin, int64_t end) {
      if (begin == end) return;
      const Tensor outside = Columns(scores, begin, end);
      ops.rows->Combine(outside, Filled(view, end - begin, kChosen), Binary::kMax, outside);
    };
    raise(0, sinks_);
    raise(sinks_ + body, length);
  }

  int64_t sinks_, size_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "partitions",
    .paper = "arXiv:2504.04704",
    .summary = "runs of entries keep equal shares, the last run stays whole",
    .params = {IntParam("sinks", 4, 0, 4096, "first entries, outside of all runs"),
               IntParam("size", 128, 1, 1 << 16, "entries of a run")},
    .make = Make<Partitions>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
