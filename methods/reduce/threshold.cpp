// SPDX-License-Identifier: Apache-2.0
// Keeps the entries whose scores reach `least`, however many they are: a method with it takes no
// budget. Protected entries stay.
//
// Paper: as in DMS, arXiv:2506.05345, and KVzap, arXiv:2601.07891; after kvpress's DMSPress. With
// `even` the number is a multiple of an even share of the tokens seen so far, as DiffKV has it
// (arXiv:2412.03131).
#include <algorithm>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Threshold final : public Reducer {
 public:
  explicit Threshold(const Params& params)
      : least_(params.Real("least")), even_(params.Bool("even")) {}

  bool takes_budget() const override { return false; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    RowOps& ops = *view.ops().rows;
    const int64_t heads = view.shape().kv_heads, width = view.width();
    // 1 where an entry stays. A NaN is not less, so it stays, and is refused with the scores.
    const Tensor stays = view.Scratch(DType::kF32, {heads, width});
    const auto tokens = static_cast<double>(std::max<int64_t>(view.tokens(), 1));
    const auto least = static_cast<float>(even_ ? least_ / tokens : least_);
    ops.Combine(input.scores, Filled(view, width, least), Binary::kLess, stays);
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
  double least_;
  bool even_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "threshold",
    .paper = "arXiv:2506.05345",
    .summary = "keeps the entries whose scores reach a number, however many they are",
    .params = {RealParam("least", 0, -1e30, 1e30, "the score from which on entries stay"),
               BoolParam("even", false, "`least` counts even shares of the tokens so far")},
    .make = Make<Threshold>(),
});

}  // namespace
}  // namespace kvgauge
