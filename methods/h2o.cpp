// SPDX-License-Identifier: Apache-2.0
// Attention that an entry has received so far: the sum over all prompt rows, and over every row
// decoded since.
//
// Paper: H2O, arXiv:2306.14048; also the scores of CaM's streaming form and of D2O
// (arXiv:2406.13035). Needs the column sums of prompt attention, and the newest row at decode
// steps. Departures: one set of entries for each KV head (`group` joins its query heads), where the
// reference is made for one query head each. Sums favour early entries, as in the reference: they
// are not divided by how many rows could see an entry.
#include "methods/registry.h"
#include "methods/score_reduction.h"

namespace kvgauge {
namespace {

class H2o final : public Scorer {
 public:
  explicit H2o(const Params& params) : reduction_(ScoreReduction::From(params)) {}

  Needs needs() const override { return {.column_sums = true, .step_attention = true}; }
  Status Check(const ModelShape&) const override { return reduction_.Check(); }
  bool ages() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    reduction_.Apply(view, view.ColumnSums(), out);
  }

  void Age(LayerView& view, Tensor scores) const override {
    Tensor row = view.Scratch(DType::kF32, {scores.shape[0], scores.shape[1]});
    reduction_.Apply(view, view.StepAttention(), row);
    view.ops().rows->Combine(scores, row, Binary::kAdd, scores);
  }

 private:
  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "h2o",
    .paper = "arXiv:2306.14048",
    .summary = "attention received so far: prompt rows summed, decoded rows added",
    .departures = {"one set of entries per KV head, not per query head"},
    .bytes = "with a trigger in decode: 4 bytes an entry for its score",
    .params = ScoreReduction::Declare({.group = ScoreReduction::Group::kSum}),
    .make = Make<H2o>(),
});

}  // namespace
}  // namespace kvgauge
