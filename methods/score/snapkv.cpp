// SPDX-License-Identifier: Apache-2.0
// Attention of the last prompt rows, smoothed along the entries.
//
// Paper: SnapKV, arXiv:2404.14469. Needs the attention of the last `window` prompt rows.
// Departures: one set of entries for each KV head instead of each query head (`group`); rows are
// averaged, not summed, which ranks alike; sums stay f32 where the reference rounds to the model's
// type. The reference always keeps the window itself: here its entries score above all others, and
// method files protect them.
#include <algorithm>

#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class SnapKv final : public Scorer {
 public:
  explicit SnapKv(const Params& params)
      : window_(params.Int("window")), reduction_(ScoreReduction::From(params)) {}

  Needs needs() const override { return {.window = window_}; }
  Status Check(const ModelShape&) const override { return reduction_.Check(); }

  void Score(LayerView& view, Tensor out) const override {
    Ops& ops = view.ops();
    const int64_t n = view.width(), rows = std::min(window_, n), before = n - rows;
    Tensor tail = Columns(out, before, n);
    ops.rows->Fill(kForcedScore, tail);
    if (before == 0) return;
    const Tensor attention = view.WindowAttention(rows);  // [query_heads, rows, width]
    Tensor mean = view.Scratch(DType::kF32, {view.shape().query_heads, before});
    for (int64_t h = 0; h < view.shape().query_heads; ++h) {
      ops.rows->ReduceColumns(Columns(attention[h], 0, before), Reduction::kMean, mean[h]);
    }
    reduction_.Apply(view, mean, Columns(out, 0, before));
  }

 private:
  int64_t window_;
  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "snapkv",
    .paper = "arXiv:2404.14469",
    .summary = "attention of the last prompt rows, pooled along the entries",
    .departures = {"one set of entries per KV head, not per query head",
                   "sums stay f32; the reference rounds them to the model's type"},
    .params = ScoreReduction::Declare({.kernel = 5}, {IntParam("window", 32, 1, 4096,
                                                               "prompt rows that look back")}),
    .make = Make<SnapKv>(),
});

}  // namespace
}  // namespace kvgauge
