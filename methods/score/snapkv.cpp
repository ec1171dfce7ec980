// SPDX-License-Identifier: Apache-2.0
// Attention of the last prompt rows, smoothed along the entries.
//
// Paper: SnapKV, arXiv:2404.14469. Needs the attention of the last `window` prompt rows.
#include "methods/score_reduction.h"
#include "methods/window_scorer.h"

namespace kvgauge {
namespace {

class SnapKv final : public WindowScorer {
 public:
  explicit SnapKv(const Params& params)
      : WindowScorer(params, /*slides=*/true), reduction_(ScoreReduction::From(params)) {}

  Status Check(const ModelShape&) const override { return reduction_.Check(); }

 protected:
  void ScoreBefore(LayerView& view, int64_t rows, Tensor out) const override {
    reduction_.Apply(view, MeanAttention(view, rows, out.shape[1]), out);
  }

 private:
  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "snapkv",
    .paper = "arXiv:2404.14469",
    .summary = "attention of the last prompt rows, pooled along the entries",
    .departures = {"one set of entries per KV head, not per query head",
                   "sums stay f32; the reference rounds them to the model's type"},
    .params = ScoreReduction::Declare({.kernel = 5}, {WindowScorer::WindowParam(32)}),
    .make = Make<SnapKv>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
