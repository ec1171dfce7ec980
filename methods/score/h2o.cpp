// SPDX-License-Identifier: Apache-2.0
// Attention that an entry has received so far: the sum over all prompt rows, and over every row
// decoded since.
//
// Paper: H2O, arXiv:2306.14048; also the scores of CaM's streaming form and of D2O
// (arXiv:2406.13035). Needs the column sums of prompt attention, and the newest row at decode
// steps.
// Sums favour early entries, as in the reference; with `rows` mean they are divided by how many
// rows could see an entry, as kvpress's ObservedAttention does.
#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class H2o final : public Scorer {
 public:
  explicit H2o(const Params& params)
      : mean_(params.Text("rows") == "mean"), reduction_(ScoreReduction::From(params)) {}

  Needs needs() const override { return {.column_sums = true, .step_attention = true}; }
  Status Check(const ModelShape&) const override { return reduction_.Check(); }
  bool ages() const override { return true; }
  bool takes_uneven() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    reduction_.Apply(view, view.ColumnSums(), out);
    if (mean_) DivideByRows(view, out);
  }

  void Age(LayerView& view, Tensor scores) const override {
    Tensor row = view.Scratch(DType::kF32, {scores.shape[0], scores.shape[1]});
    reduction_.Apply(view, view.StepAttention(), row);
    if (mean_) {
      // A running mean moves by its distance from the newest row, over the rows so far.
      view.ops().rows->Combine(row, scores, Binary::kSubtract, row);
      DivideByRows(view, row);
    }
    view.ops().rows->Combine(scores, row, Binary::kAdd, scores);
  }

 private:
  // By the number of rows that have seen each entry, its own included.
  static void DivideByRows(LayerView& view, Tensor out) {
    RowOps& rows = *view.ops().rows;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t n = view.lengths()[h];
      if (n == 0) continue;
      Tensor counts = view.Scratch(DType::kF32, {1, n});
      rows.Convert(view.Positions(h).Reshape({1, n}), counts);
      rows.Affine(counts, -1.0f, static_cast<float>(view.tokens()), counts);
      Tensor own = Columns(out.Slice(h, h + 1), 0, n);
      rows.Combine(own, counts, Binary::kDivide, own);
    }
  }

  bool mean_;
  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "h2o",
    .paper = "arXiv:2306.14048",
    .summary = "attention received so far: prompt rows summed, decoded rows added",
    .departures = {"one set of entries per KV head, not per query head"},
    .bytes = "with a trigger in decode: 4 bytes an entry for its score",
    .params = ScoreReduction::Declare(
        {.group = ScoreReduction::Group::kSum},
        {ChoiceParam("rows", "sum", {"sum", "mean"},
                     "rows are summed, or averaged over those that could see an entry")}),
    .make = Make<H2o>(),
});

}  // namespace
}  // namespace kvgauge
