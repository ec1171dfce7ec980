// SPDX-License-Identifier: Apache-2.0
// Attention that an entry has received so far times the length of its value, by absolute numbers.
//
// Paper: VATP, arXiv:2406.12335, in the form that builds on H2O. Needs the column sums of prompt
// attention, and the newest row at decode steps. First entries have short values and much
// attention: the reference keeps 20 of them, method files protect them.
#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Vatp final : public Scorer {
 public:
  explicit Vatp(const Params& params) : reduction_(ScoreReduction::From(params)) {}

  Needs needs() const override { return {.column_sums = true, .step_attention = true}; }
  Status Check(const ModelShape&) const override { return reduction_.Check(); }
  bool ages() const override { return true; }
  bool takes_uneven() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    reduction_.Apply(view, view.ColumnSums(), out);
    TimesValues(view, out);
  }

  void Age(LayerView& view, Tensor scores) const override {
    const Tensor row = view.Scratch(DType::kF32, {scores.shape[0], scores.shape[1]});
    reduction_.Apply(view, view.StepAttention(), row);
    TimesValues(view, row);
    view.ops().rows->Combine(scores, row, Binary::kAdd, scores);
  }

 private:
  // rows: [kv_heads, width]
  static void TimesValues(LayerView& view, const Tensor& rows) {
    RowOps& ops = *view.ops().rows;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t n = view.lengths()[h];
      if (n == 0) continue;
      const Tensor lengths = view.Scratch(DType::kF32, {1, n});
      ops.ReduceRows(view.Values(h), Reduction::kSumAbs, lengths.Reshape({n}));
      const Tensor own = Columns(rows.Slice(h, h + 1), 0, n);
      ops.Combine(own, lengths, Binary::kMultiply, own);
    }
  }

  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "vatp",
    .paper = "arXiv:2406.12335",
    .summary = "attention received so far times the absolute sum of an entry's value",
    .departures = {"one set of entries per KV head, not per query head",
                   "the form over the last 400 rows is left out"},
    .bytes = "with a trigger in decode: 4 bytes an entry for its score",
    .params = ScoreReduction::Declare({.group = ScoreReduction::Group::kSum}),
    .make = Make<Vatp>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
