// SPDX-License-Identifier: Apache-2.0
// Attention of the last prompt rows times the longest value of its head.
//
// Paper: LAVa, arXiv:2509.09754. Needs the attention of the last `window` prompt rows, and values,
// whose length is the sum of absolute numbers. allocate.lava shares out by these scores.
#include "methods/score_reduction.h"
#include "methods/tensors.h"
#include "methods/window_scorer.h"

namespace kvgauge {
namespace {

class LavaScore final : public WindowScorer {
 public:
  explicit LavaScore(const Params& params)
      : WindowScorer(params), reduction_(ScoreReduction::From(params)) {}

  Status Check(const ModelShape&) const override { return reduction_.Check(); }
  bool takes_uneven() const override { return true; }

 protected:
  void ScoreBefore(LayerView& view, int64_t rows, Tensor out) const override {
    const int64_t group = view.shape().group();
    const Tensor mean = MeanAttention(view, rows, out.shape[1]);
    const std::vector<float> longest = LongestValues(view, out.shape[1]);
    for (int64_t h = 0; h < mean.shape[0]; ++h) {
      const Tensor own = mean.Slice(h, h + 1);
      view.ops().rows->Affine(own, longest[static_cast<size_t>(h / group)], 0.0f, own);
    }
    reduction_.Apply(view, mean, out);
  }

 private:
  // Looks at the entries before the window, of which the longest KV head has `count`.
  static std::vector<float> LongestValues(LayerView& view, int64_t count) {
    RowOps& ops = *view.ops().rows;
    const int64_t heads = view.shape().kv_heads;
    const Tensor lengths = view.Scratch(DType::kF32, {heads, count});
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t own = view.lengths()[static_cast<size_t>(h)] - (view.width() - count);
      if (own == 0) continue;
      ops.ReduceRows(view.Values(h).Slice(0, own), Reduction::kSumAbs, lengths[h].Slice(0, own));
    }
    const Tensor longest = view.Scratch(DType::kF32, {heads});
    ops.ReduceRows(lengths, Reduction::kMax, longest);
    return Fetch(view.ops(), longest);
  }

  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "lava",
    .paper = "arXiv:2509.09754",
    .summary = "attention of the last prompt rows times the longest value of its head",
    .departures = {"sums stay f32; the reference rounds them to the model's type"},
    .params = ScoreReduction::Declare({.group = ScoreReduction::Group::kMax,
                                       .kernel = 7,
                                       .pooling = Pooling::kMax,
                                       .pool_first = true},
                                      {WindowScorer::WindowParam(32)}),
    .make = Make<LavaScore>(),
});

}  // namespace
}  // namespace kvgauge
