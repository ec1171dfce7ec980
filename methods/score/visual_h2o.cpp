// SPDX-License-Identifier: Apache-2.0
// Attention from all prompt rows; every entry of text scores above every row of a picture or video.
//
// Paper: LOOK-M, arXiv:2406.18139. Needs the column sums of prompt attention, and what entries
// show. Rows of pictures go before any text does, the least looked at first.
#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class VisualH2o final : public Scorer {
 public:
  explicit VisualH2o(const Params& params) : reduction_(ScoreReduction::From(params)) {}

  Needs needs() const override { return {.column_sums = true, .modality = true}; }
  Status Check(const ModelShape&) const override { return reduction_.Check(); }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    reduction_.Apply(view, view.ColumnSums(), out);
    // A row gives an entry 1 at most.
    const auto above = static_cast<float>(view.tokens() * view.shape().group() + 1);
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t n = view.lengths()[h];
      if (n == 0) continue;
      const Tensor text = view.OfModality(Modality::kText, h).Reshape({1, n});
      const Tensor lift = view.Scratch(DType::kF32, {1, n});
      ops.Affine(text, above, 0.0f, lift);
      const Tensor own = Columns(out.Slice(h, h + 1), 0, n);
      ops.Combine(own, lift, Binary::kAdd, own);
    }
  }

 private:
  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "visual_h2o",
    .paper = "arXiv:2406.18139",
    .summary = "attention from all prompt rows, every entry of text above every row of a picture",
    .departures = {"one set of entries per KV head, not per query head",
                   "text goes once no row of a picture is left, where the reference keeps all of "
                   "it whatever the budget"},
    .params = ScoreReduction::Declare({.group = ScoreReduction::Group::kSum}),
    .make = Make<VisualH2o>(),
});

}  // namespace
}  // namespace kvgauge
