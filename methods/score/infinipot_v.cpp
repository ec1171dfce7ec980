// SPDX-License-Identifier: Apache-2.0
// The length of values, averaged over neighbouring rows, columns and frames; all text scores above
// all pictures, later text higher.
//
// Paper: InfiniPot-V, arXiv:2506.15745, its value norm. Needs what entries show. The layers of the
// first quarter average over frames, rows and columns, those of the second over rows and columns,
// those of the third over the neighbours in the prompt, those of the last not at all.
#include <algorithm>
#include <vector>

#include "methods/registry.h"
#include "methods/tensors.h"
#include "methods/video_frames.h"

namespace kvgauge {
namespace {

class ValueNorm final : public Scorer {
 public:
  explicit ValueNorm(const Params& params) : pool_(params.Bool("pool")) {}

  Needs needs() const override { return {.modality = true}; }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    const VideoFrames frames = FramesOf(view);
    const auto shown = std::ssize(frames.entries);
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t n = view.lengths()[h];
      if (n == 0) continue;
      const Tensor own = Columns(out.Slice(h, h + 1), 0, n);
      const Tensor norms = view.Scratch(DType::kF32, {1, n});
      ops.ReduceRows(view.Values(h), Reduction::kNorm, norms[0]);
      if (shown > 0 && n == view.tokens()) Average(view, frames, norms);
      // Pictures score their norms; text scores its place above the largest of all.
      const Tensor most = view.Scratch(DType::kF32, {1});
      ops.ReduceRows(norms, Reduction::kMax, most);
      ScoreText(view, h, own);
      const Tensor text = view.OfModality(Modality::kText, h).Reshape({1, n});
      const Tensor lift = view.Scratch(DType::kF32, {1, n});
      ops.Combine(text, Spread(view, most, n), Binary::kMultiply, lift);
      ops.Combine(own, lift, Binary::kAdd, own);
      ops.Affine(text, -1.0f, 1.0f, lift);
      ops.Combine(norms, lift, Binary::kMultiply, lift);
      ops.Combine(own, lift, Binary::kAdd, own);
    }
  }

 private:
  struct Axes {
    int64_t most_kernel = 1;
    bool frames = false, grid = false, line = false;
  };
  static Axes AxesOf(int64_t layer, int64_t layers) {
    switch (std::min<int64_t>(layer / std::max<int64_t>(1, layers / 4), 3)) {
      case 0:
        return {.most_kernel = 7, .frames = true, .grid = true};
      case 1:
        return {.most_kernel = 5, .grid = true};
      case 2:
        return {.most_kernel = 3, .line = true};
      default:
        return {};
    }
  }

  // Puts averages into the places of the frames' entries. norms: [1, n].
  void Average(LayerView& view, const VideoFrames& frames, const Tensor& norms) const {
    const Axes axes = AxesOf(view.layer(), view.shape().layers);
    if (!pool_ || axes.most_kernel == 1) return;
    const auto shown = std::ssize(frames.entries);
    int64_t kernel = axes.most_kernel;
    if (!axes.line) {
      kernel = std::min({kernel, frames.count, frames.rows, frames.columns});
      if (kernel % 2 == 0) --kernel;
      if (kernel < 2) return;
    }
    SelectOps& select = *view.ops().select;
    const Tensor entries = Upload(view, std::span<const int32_t>(frames.entries));
    Tensor held = view.Scratch(DType::kF32, {shown});
    select.Gather(AsColumn(norms[0]), entries, AsColumn(held));
    if (axes.line) held = Along(view, held, shown, 1, kernel);
    if (axes.grid) {
      held = Along(view, held, frames.columns, 1, kernel);
      held = Along(view, held, frames.rows, frames.columns, kernel);
    }
    if (axes.frames) held = Along(view, held, frames.count, frames.area(), kernel);
    select.Scatter(AsColumn(held), entries, AsColumn(norms[0]));
  }

  // Averages over neighbours along an axis of `length` whose places are `step` apart; zeros stand
  // beyond its ends.
  static Tensor Along(LayerView& view, const Tensor& held, int64_t length, int64_t step,
                      int64_t kernel) {
    const int64_t n = held.shape[0];
    SelectOps& select = *view.ops().select;
    // Lines along the axis, one after the other.
    std::vector<int32_t> lines;
    for (int64_t outer = 0; outer < n; outer += length * step) {
      for (int64_t inner = 0; inner < step; ++inner) {
        for (int64_t i = 0; i < length; ++i) {
          lines.push_back(static_cast<int32_t>(outer + inner + i * step));
        }
      }
    }
    const Tensor index = Upload(view, std::span<const int32_t>(lines));
    const Tensor ordered = view.Scratch(DType::kF32, {n}), pooled = view.Scratch(DType::kF32, {n});
    select.Gather(AsColumn(held), index, AsColumn(ordered));
    select.Pool(ordered.Reshape({n / length, length}), kernel, Pooling::kAverage,
                pooled.Reshape({n / length, length}));
    const Tensor out = view.Scratch(DType::kF32, {n});
    select.Scatter(AsColumn(pooled), index, AsColumn(out));
    return out;
  }

  bool pool_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "infinipot_v",
    .paper = "arXiv:2506.15745",
    .summary = "the length of values, averaged over neighbours in pictures; text above them",
    .departures = {"pictures of unequal grids are not averaged"},
    .params = {BoolParam("pool", true, "average over neighbours in the first three quarters")},
    .make = Make<ValueNorm>(),
});

}  // namespace
}  // namespace kvgauge
