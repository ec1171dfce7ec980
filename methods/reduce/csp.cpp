// SPDX-License-Identifier: Apache-2.0
// Entries that rows of their own kind look at, and a share for those that the other kind looks at:
// text and pictures are chosen apart.
//
// Paper: CSP, arXiv:2412.04652; after EffiVLM-Bench's CSPCluster. Needs the last rows' attention
// and what entries show. The rows of the window give each entry before it two sums, one of the rows
// of its own modality and one of the others. The best by either stay; scores fill what is left.
#include <algorithm>
#include <utility>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Above all scores that are not forced, below those that are.
constexpr float kChosenCell = 1e28f;

class Csp final : public Reducer {
 public:
  explicit Csp(const Params& params)
      : window_(params.Int("window")), cross_(params.Real("cross")) {}

  Needs needs() const override { return {.window = window_, .modality = true}; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    std::vector<HeadPlan> plans;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], kept = std::min(length, input.allocated[h]);
      Tensor scores = Columns(input.scores.Slice(h, h + 1), 0, length);
      const int64_t rows = std::min(window_, length), before = length - rows;
      // A decoded row has no window to look back from.
      if (!view.decoding() && kept < length && before > 0) {
        const int64_t room = kept - CountForced(view, scores);
        if (room > 0) scores = Raised(view, h, scores, rows, room);
      }
      HeadPlan plan;
      plan.keep = Best(view, scores, kept);
      plans.push_back(plan);
    }
    return plans;
  }

 private:
  Tensor Raised(LayerView& view, int64_t head, const Tensor& scores, int64_t rows,
                int64_t room) const {
    Ops& ops = view.ops();
    const int64_t n = scores.shape[1], before = n - rows;
    const Tensor text = view.OfModality(Modality::kText, head).Reshape({1, n});
    const Tensor shown = view.Scratch(DType::kF32, {1, n});
    ops.rows->Affine(text, -1.0f, 1.0f, shown);
    // What rows of text and rows of pictures give, and which of it is of an entry's own kind.
    const Tensor by_text = SumOf(view, head, rows, text), by_shown = SumOf(view, head, rows, shown);
    const Tensor own = Blend(view, by_text, text, by_shown, shown);
    const Tensor other = Blend(view, by_shown, text, by_text, shown);
    // What must stay needs no place of the room.
    const Tensor free = view.Scratch(DType::kF32, {1, before});
    ops.rows->Combine(Columns(scores, 0, before), Filled(view, before, kForcedFrom), Binary::kLess,
                      free);
    const Tensor raised = view.Scratch(DType::kF32, {1, n});
    ops.rows->Affine(scores, 1.0f, 0.0f, raised);
    const auto share = [&](double part) {
      return std::clamp<int64_t>(static_cast<int64_t>(static_cast<double>(room) * part), 1, before);
    };
    for (const auto& [sums, count] :
         {std::pair(own, share(1 - cross_)), std::pair(other, share(cross_))}) {
      ops.rows->Combine(sums, free, Binary::kMultiply, sums);
      const Tensor best = Best(view, sums, count);
      const Tensor chosen = Filled(view, count, kChosenCell);
      ops.select->Scatter(AsColumn(chosen), best, AsColumn(raised[0]));
    }
    ops.rows->Combine(scores, raised, Binary::kMax, raised);
    return raised;
  }

  // What the rows of the window that `of` [1, n] marks give to each entry before it, summed over
  // the head's query heads. [1, before]
  static Tensor SumOf(LayerView& view, int64_t head, int64_t rows, const Tensor& of) {
    RowOps& ops = *view.ops().rows;
    const int64_t before = of.shape[1] - rows, group = view.shape().group();
    const Tensor attention = view.WindowAttention(rows);
    const int64_t seen = attention.shape[1], n = of.shape[1];
    const Tensor mask = view.Scratch(DType::kF32, {seen});
    ops.Affine(Columns(of, n - seen, n), 1.0f, 0.0f, mask.Reshape({1, seen}));
    const Tensor wide = Spread(view, mask, before);
    const Tensor masked = view.Scratch(DType::kF32, {seen, before});
    const Tensor sum = view.Scratch(DType::kF32, {1, before});
    const Tensor one = view.Scratch(DType::kF32, {before});
    for (int64_t q = head * group; q < (head + 1) * group; ++q) {
      ops.Combine(Columns(attention[q], 0, before), wide, Binary::kMultiply, masked);
      ops.ReduceColumns(masked, Reduction::kSum, one);
      ops.Combine(sum, one.Reshape({1, before}), Binary::kAdd, sum);
    }
    return sum;
  }

  // a where `of_a` marks an entry, b where `of_b` does.
  static Tensor Blend(LayerView& view, const Tensor& a, const Tensor& of_a, const Tensor& b,
                      const Tensor& of_b) {
    RowOps& ops = *view.ops().rows;
    const int64_t n = a.shape[1];
    const Tensor first = view.Scratch(DType::kF32, {1, n});
    const Tensor second = view.Scratch(DType::kF32, {1, n});
    ops.Combine(a, Columns(of_a, 0, n), Binary::kMultiply, first);
    ops.Combine(b, Columns(of_b, 0, n), Binary::kMultiply, second);
    ops.Combine(first, second, Binary::kAdd, first);
    return first;
  }

  int64_t window_;
  double cross_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "csp",
    .paper = "arXiv:2412.04652",
    .summary = "text and pictures chosen apart: by rows of their own kind, and by the others",
    .departures = {"attention is the model's own softmax, without the 1 that the reference adds to "
                   "its denominator",
                   "the window is a number of rows, where the reference takes a tenth of the "
                   "budget",
                   "what both sums choose is held once, and scores choose more instead",
                   "per KV head, as its form for heads has it"},
    .params = {IntParam("window", 32, 1, 4096, "prompt rows that look back; as the score's"),
               RealParam(
                   "cross", 0.1, 0, 1,
                   "share of the room that rows of the other kind choose; the authors tune it "
                   "for each data set")},
    .make = Make<Csp>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
