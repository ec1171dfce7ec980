// SPDX-License-Identifier: Apache-2.0
// Keeps the entries with the highest scores; among equals the earlier one. Needs nothing.
#include <algorithm>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class TopK final : public Reducer {
 public:
  explicit TopK(const Params&) {}

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      HeadPlan plan;
      plan.keep = Best(view, Columns(input.scores.Slice(h, h + 1), 0, length), kept);
      plans.push_back(plan);
    }
    return plans;
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "top_k",
    .summary = "keeps the entries with the highest scores",
    .make = Make<TopK>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
