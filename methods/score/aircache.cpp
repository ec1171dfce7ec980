// SPDX-License-Identifier: Apache-2.0
// Rows of pictures by what the question's telling words give them; text stays.
//
// Paper: AirCache, arXiv:2503.23956; no public code. Needs the rows behind the last
// picture. A prompt without pictures keeps its newest tokens.
#include "methods/elite_window.h"
#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class AirCacheScore final : public Scorer {
 public:
  explicit AirCacheScore(const Params& params)
      : window_(params), reduction_(ScoreReduction::From(params)) {}

  Needs needs() const override { return window_.needs(); }
  Status Check(const ModelShape&) const override { return reduction_.Check(); }

  void Score(LayerView& view, Tensor out) const override {
    reduction_.Apply(view, window_.Importance(view), out);
    for (int64_t h = 0; h < out.shape[0]; ++h) {
      const int64_t n = view.lengths()[static_cast<size_t>(h)];
      if (n == 0) continue;
      const Tensor scores = Columns(out.Slice(h, h + 1), 0, n);
      const Tensor text = view.Scratch(DType::kF32, {1, n});
      // Text scores from 1 on, which weights do not reach.
      ScoreText(view, h, text);
      view.ops().rows->Combine(scores, text, Binary::kMax, scores);
    }
  }

 private:
  EliteWindow window_;
  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "aircache",
    .paper = "arXiv:2503.23956",
    .summary = "rows of pictures by what the question's telling words give them; text stays",
    .departures = {"the window is chosen among the rows behind the last picture: a causal mask "
                   "hides pictures from those before",
                   "each query head has a window of its own, and KV heads take the mean of theirs; "
                   "the paper writes its formulas for one head",
                   "of a longer question, its last rows"},
    .params = ScoreReduction::Declare({}, EliteWindow::Declare()),
    .make = Make<AirCacheScore>(),
});

}  // namespace
}  // namespace kvgauge
