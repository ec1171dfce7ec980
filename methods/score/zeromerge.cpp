// SPDX-License-Identifier: Apache-2.0
// Attention that an entry has received, where each row counts a little less than the next.
//
// Paper: ZeroMerge, arXiv:2503.10714; after the released code. Needs the attention of the last
// `window` prompt rows, and the newest row at decode steps.
#include <cmath>
#include <vector>

#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class FadingSum final : public Scorer {
 public:
  explicit FadingSum(const Params& params)
      : window_(params.Int("window")),
        fade_(params.Real("fade")),
        reduction_(ScoreReduction::From(params)) {}

  Needs needs() const override { return {.window = window_, .step_attention = true}; }
  Status Check(const ModelShape&) const override { return reduction_.Check(); }
  bool ages() const override { return true; }
  bool takes_uneven() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    const Tensor attention = view.WindowAttention(window_);  // [query_heads, rows, n]
    const int64_t heads = attention.shape[0], rows = attention.shape[1], n = attention.shape[2];
    if (rows == 0 || n == 0) return;
    std::vector<float> counts(static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) {
      counts[static_cast<size_t>(r)] =
          static_cast<float>(std::pow(fade_, static_cast<double>(rows - 1 - r)));
    }
    const Tensor weights = Upload(view, counts).Reshape({1, 1, rows});
    const Tensor sums = view.Scratch(DType::kF32, {heads, n});
    for (int64_t h = 0; h < heads; ++h) {
      view.ops().linear->MatMulNN(weights, attention.Slice(h, h + 1), 1.0f,
                                  sums[h].Reshape({1, 1, n}));
    }
    reduction_.Apply(view, sums, out);
  }

  void Age(LayerView& view, Tensor scores) const override {
    const Tensor row = view.Scratch(DType::kF32, {scores.shape[0], scores.shape[1]});
    reduction_.Apply(view, view.StepAttention(), row);
    view.ops().rows->Affine(scores, static_cast<float>(fade_), 0.0f, scores);
    view.ops().rows->Combine(scores, row, Binary::kAdd, scores);
  }

 private:
  int64_t window_;
  double fade_;
  ScoreReduction reduction_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "zeromerge",
    .paper = "arXiv:2503.10714",
    .summary = "attention received, where each row counts less than the next",
    .departures = {"rows of the prompt before the last 256 do not count; in the reference they "
                   "have 0.6 % of the weight together"},
    .bytes = "with a trigger in decode: 4 bytes an entry for its score",
    .params = ScoreReduction::Declare({.group = ScoreReduction::Group::kSum},
                                      {IntParam("window", 256, 1, 4096, "prompt rows that count"),
                                       RealParam("fade", 0.98, 0.001, 1,
                                                 "what a row counts, of what the next one does")}),
    .make = Make<FadingSum>(),
});

}  // namespace
}  // namespace kvgauge
