// SPDX-License-Identifier: Apache-2.0
// Attention of the last prompt rows, and how much it moves from row to row.
//
// Paper: CAKE, arXiv:2503.12491. Needs the attention of the last `window` prompt rows, of which
// what they give to entries before them counts. An entry scores mean + `gamma` * variance over the
// rows; allocate.cake shares out between layers.
// While decoding an entry scores what the newest row gives it, pooled likewise.
#include "methods/score_reduction.h"
#include "methods/tensors.h"
#include "methods/window_scorer.h"

namespace kvgauge {
namespace {

class CakeScore final : public WindowScorer {
 public:
  explicit CakeScore(const Params& params)
      : WindowScorer(params),
        gamma_(static_cast<float>(params.Real("gamma"))),
        reduction_(ScoreReduction::From(params)) {}

  Needs needs() const override {
    Needs needs = WindowScorer::needs();
    needs.step_attention = true;
    return needs;
  }
  Status Check(const ModelShape&) const override { return reduction_.Check(); }
  bool any_time() const override { return true; }

 protected:
  void ScoreBefore(LayerView& view, int64_t rows, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    const int64_t heads = view.shape().query_heads, before = out.shape[1];
    const Tensor attention = view.WindowAttention(rows);
    const Tensor centred = view.Scratch(DType::kF32, {attention.shape[1], before});
    const Tensor variance = view.Scratch(DType::kF32, {before});
    const Tensor scores = view.Scratch(DType::kF32, {heads, before});
    for (int64_t h = 0; h < heads; ++h) {
      RowMoments(ops, Columns(attention[h], 0, before), centred, scores[h], variance);
      const Tensor row = variance.Reshape({1, before}), own = scores.Slice(h, h + 1);
      ops.Affine(row, gamma_, 0.0f, row);
      ops.Combine(own, row, Binary::kAdd, own);
    }
    reduction_.Apply(view, scores, out);
  }

  void ScoreStep(LayerView& view, Tensor out) const override {
    reduction_.Apply(view, Columns(view.StepAttention(), 0, out.shape[1]), out);
  }

 private:
  float gamma_;
  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "cake",
    .version = 2,
    .paper = "arXiv:2503.12491",
    .summary = "attention of the last prompt rows: its mean and how much it moves",
    .departures = {"one set of entries per KV head, as in the reference's grouped form",
                   "pooling while decoding runs over entries by position; the released code keeps "
                   "those of a cut prompt in the order of their scores"},
    .params = ScoreReduction::Declare(
        {.kernel = 5}, {WindowScorer::WindowParam(32),
                        RealParam("gamma", 200, 0, 1e6, "weight of the variance over the rows")}),
    .make = Make<CakeScore>(),
});

}  // namespace
}  // namespace kvgauge
