// SPDX-License-Identifier: Apache-2.0
// Gives entries up, the worst scores first, until the last row's attention to the others has lost a
// share of its norm: a method with it takes no budget.
//
// Paper: ReFreeKV, formerly DBudgetKV, arXiv:2502.16886; after Patrick-Ni/ReFreeKV. Needs the
// attention of the newest row. For each query head the norm is the root of the sum of squares over
// what is not protected; its mean over the query heads of a layer says how many entries the heads
// of that layer keep, which is as many for each.
#include <algorithm>
#include <cmath>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class AttentionNorm final : public Reducer {
 public:
  explicit AttentionNorm(const Params& params) : loss_(params.Real("loss")) {}

  Needs needs() const override { return {.window = 1, .step_window = 1}; }
  int64_t protects() const override { return 1; }
  bool takes_budget() const override { return false; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    const std::vector<Head> heads = HeadsOf(view, input.scores);
    const int64_t open = Fewest(view, heads);
    std::vector<HeadPlan> plans;
    for (const Head& head : heads) {
      HeadPlan plan;
      plan.keep = head.scores.empty()
                      ? Numbers(view, 0)
                      : Best(view, head.scores, head.forced + std::min(open, head.open()));
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  struct Head {
    Tensor scores;   // [1, length], or empty
    Tensor squares;  // [group, length] of the last row's attention, 0 where an entry is protected
    int64_t forced = 0;

    int64_t open() const { return scores.empty() ? 0 : scores.shape[1] - forced; }
  };

  static std::vector<Head> HeadsOf(LayerView& view, const Tensor& scores) {
    RowOps& rows = *view.ops().rows;
    const int64_t group = view.shape().group(), width = view.width();
    const Tensor attention = view.WindowAttention(1).Reshape({view.shape().query_heads, width});
    std::vector<Head> heads;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      Head& head = heads.emplace_back();
      if (length == 0) continue;
      head.scores = Columns(scores.Slice(h, h + 1), 0, length);
      head.forced = CountForced(view, head.scores);
      head.squares = view.Scratch(DType::kF32, {group, length});
      const Tensor own = Columns(attention.Slice(h * group, (h + 1) * group), 0, length);
      const Tensor free = view.Scratch(DType::kF32, {1, length});
      rows.Combine(own, own, Binary::kMultiply, head.squares);
      rows.Combine(head.scores, Filled(view, length, kForcedFrom), Binary::kLess, free);
      rows.Combine(head.squares, free[0], Binary::kMultiply, head.squares);
    }
    return heads;
  }

  // The norm that the best `open` entries of all heads leave.
  static double Norm(LayerView& view, const std::vector<Head>& heads, int64_t open) {
    Ops& ops = view.ops();
    const int64_t group = view.shape().group();
    const Tensor sums = view.Scratch(DType::kF32, {std::ssize(heads) * group});
    for (size_t h = 0; h < heads.size(); ++h) {
      const Head& head = heads[h];
      if (head.scores.empty()) continue;
      const int64_t count = head.forced + std::min(open, head.open());
      const auto first = static_cast<int64_t>(h) * group;
      const Tensor kept = view.Scratch(DType::kF32, {group, count});
      const Tensor index = Best(view, head.scores, count);
      for (int64_t g = 0; g < group; ++g) {
        ops.select->Gather(AsColumn(head.squares[g]), index, AsColumn(kept[g]));
      }
      ops.rows->ReduceRows(kept, Reduction::kSum, sums.Slice(first, first + group));
    }
    double norm = 0;
    for (const float sum : Fetch(ops, sums)) norm += std::sqrt(double{sum});
    return norm;
  }

  // The least number of entries, one at least, besides those that are protected.
  int64_t Fewest(LayerView& view, const std::vector<Head>& heads) const {
    int64_t enough = 0, too_few = 0;
    for (const Head& head : heads) enough = std::max(enough, head.open());
    if (loss_ <= 0 || enough == 0) return enough;
    const double all = Norm(view, heads, enough);
    while (enough - too_few > 1) {
      const int64_t middle = too_few + (enough - too_few) / 2;
      (all - Norm(view, heads, middle) <= loss_ * all ? enough : too_few) = middle;
    }
    return enough;
  }

  double loss_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "attention_norm",
    .paper = "arXiv:2502.16886",
    .summary = "gives entries up until the last row's attention has lost a share of its norm",
    .params = {RealParam("loss", 0.05, 0, 1, "share of the norm that may go; 0: nothing goes")},
    .make = Make<AttentionNorm>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
