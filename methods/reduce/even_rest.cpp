// SPDX-License-Identifier: Apache-2.0
// Keeps the entries that score above 0, the best first, and of the others evenly spaced ones.
//
// No paper. Needs nothing. Of V others, m places go to those in the middle of m equal parts:
// floor((2 i + 1) V / (2 m)).
#include <algorithm>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class EvenRest final : public Reducer {
 public:
  explicit EvenRest(const Params&) {}

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      HeadPlan plan;
      plan.keep = Keep(view, Columns(input.scores.Slice(h, h + 1), 0, length), kept);
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  // scores: [1, n].
  static Tensor Keep(LayerView& view, const Tensor& scores, int64_t kept) {
    const int64_t n = scores.shape[1];
    if (kept == n) return Best(view, scores, kept);
    Ops& ops = view.ops();
    const Tensor above = view.Scratch(DType::kF32, {1, n});
    const Tensor count = view.Scratch(DType::kF32, {1});
    ops.rows->Combine(view.Scratch(DType::kF32, {1, n}), scores, Binary::kLess, above);
    ops.rows->ReduceRows(above, Reduction::kSum, count);
    const auto first = static_cast<int64_t>(Fetch(ops, count)[0]);
    if (kept <= first) return Best(view, scores, kept);
    const Tensor others = Complement(view, Best(view, scores, first), n);
    const int64_t rest = n - first, places = kept - first;
    std::vector<int32_t> middles;
    for (int64_t i = 0; i < places; ++i) {
      middles.push_back(static_cast<int32_t>((2 * i + 1) * rest / (2 * places)));
    }
    const Tensor chosen = view.Scratch(DType::kI32, {places});
    ops.select->Gather(AsColumn(others), Upload(view, std::span<const int32_t>(middles)),
                       AsColumn(chosen));
    ops.select->Scatter(AsColumn(Filled(view, places, 1.0f)), chosen, AsColumn(above.Reshape({n})));
    return Best(view, above, kept);
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "even_rest",
    .summary = "keeps entries that score above 0 and, of the others, evenly spaced ones",
    .make = Make<EvenRest>(),
});

}  // namespace
}  // namespace kvgauge
