// SPDX-License-Identifier: Apache-2.0
// Keeps the entries whose scores reach `least`, however many they are: a method with it takes no
// budget. Protected entries stay.
//
// Paper: as in DMS, arXiv:2506.05345, and KVzap, arXiv:2601.07891; after kvpress's DMSPress.
#include <algorithm>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Threshold final : public Reducer {
 public:
  explicit Threshold(const Params& params) : least_(static_cast<float>(params.Real("least"))) {}

  bool takes_budget() const override { return false; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    RowOps& ops = *view.ops().rows;
    const int64_t heads = view.shape().kv_heads, width = view.width();
    // 1 where an entry stays. A NaN is not less, so it stays, and is refused with the scores.
    const Tensor stays = view.Scratch(DType::kF32, {heads, width});
    ops.Combine(input.scores, Filled(view, width, least_), Binary::kLess, stays);
    ops.Affine(stays, -1.0f, 1.0f, stays);
    const Tensor counts = view.Scratch(DType::kF32, {heads});
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      const Tensor behind = Columns(stays.Slice(h, h + 1), length, width);
      if (length < width) ops.Fill(0.0f, behind);
    }
    ops.ReduceRows(stays, Reduction::kSum, counts);
    const std::vector<float> fetched = Fetch(view.ops(), counts);
    std::vector<HeadPlan> plans(static_cast<size_t>(heads));
    for (int64_t h = 0; h < heads; ++h) {
      const auto count = static_cast<int64_t>(fetched[static_cast<size_t>(h)]);
      plans[static_cast<size_t>(h)].keep = Best(view, stays.Slice(h, h + 1), count);
    }
    return plans;
  }

 private:
  float least_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "threshold",
    .paper = "arXiv:2506.05345",
    .summary = "keeps the entries whose scores reach a number, however many they are",
    .params = {RealParam("least", 0, -1e30, 1e30, "the score from which on entries stay")},
    .make = Make<Threshold>(),
});

}  // namespace
}  // namespace kvgauge
