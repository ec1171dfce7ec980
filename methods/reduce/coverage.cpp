// SPDX-License-Identifier: Apache-2.0
// Keeps the fewest entries of a head that hold `mass` of its scores, however many they are: a
// method with it takes no budget. Protected entries stay. Needs scores that add up.
//
// Paper: as LeanKV prunes, arXiv:2412.03131.
#include "methods/coverage.h"

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Coverage final : public Reducer {
 public:
  explicit Coverage(const Params& params) : mass_(params.Real("mass")) {}

  bool takes_budget() const override { return false; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      HeadPlan plan;
      if (length == 0) {
        plan.keep = Numbers(view, 0);
      } else {
        const Tensor scores = Columns(input.scores.Slice(h, h + 1), 0, length);
        plan.keep = Best(view, scores, CoveringCount(view, scores, mass_));
      }
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  double mass_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "coverage",
    .paper = "arXiv:2412.03131",
    .summary = "keeps the fewest entries that hold a share of a head's scores",
    .params = {RealParam("mass", 0.95, 0, 1, "share of a head's scores that its entries hold")},
    .make = Make<Coverage>(),
});

}  // namespace
}  // namespace kvgauge
