// SPDX-License-Identifier: Apache-2.0
// Keeps every entry: scores are for a store that puts entries into classes by them, and none is
// given up. Needs nothing.
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class KeepAll final : public Reducer {
 public:
  explicit KeepAll(const Params&) {}

  bool takes_budget() const override { return false; }
  bool evicts() const override { return false; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput&, State*) const override {
    std::vector<HeadPlan> plans;
    for (const int64_t length : view.lengths()) {
      HeadPlan plan;
      plan.keep = Numbers(view, length);
      plans.push_back(plan);
    }
    return plans;
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "keep_all",
    .summary = "keeps every entry, for stores that put entries into classes by their scores",
    .make = Make<KeepAll>(),
});

}  // namespace
}  // namespace kvgauge
