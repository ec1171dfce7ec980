// SPDX-License-Identifier: Apache-2.0
// Rows leave behind every layer, more of them the higher it is: those to which the last part of the
// prompt pays least.
//
// Paper: PyramidInfer, arXiv:2405.12532; after mutonix/pyramidinfer. Needs the attention of the
// last prompt rows. The last `recent` share of the prompt and one row more always go on, and so do
// the first `sinks`. A row before those counts by what the recent rows of a layer give it, averaged
// over query heads and rows; the oldest row has the weight 1 and the newest `weight`. The share of
// these rows that goes on falls along a cosine, from all behind the first layer towards 1 - `drop`,
// as long as that leaves more than `least`.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/row_choice.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class PyramidInfer final : public Thin {
 public:
  explicit PyramidInfer(const Params& params)
      : recent_(params.Real("recent")),
        drop_(params.Real("drop")),
        weight_(static_cast<float>(params.Real("weight"))),
        flat_(params.Text("schedule") == "flat"),
        sinks_(params.Int("sinks")),
        least_(params.Int("least")),
        every_(params.Int("every")),
        rows_(params.Int("rows")) {}

  Needs needs() const override { return {.window = rows_}; }

  Status Check(const ModelShape& shape) const override {
    if (!Layers(shape).empty()) return {};
    return BadInput(StrCat("no rows leave below the last of the model's ", shape.layers,
                           " layers, as all go on behind the first and then every ", every_,
                           ". layer lets some go; expected a deeper model, a smaller every, or "
                           "schedule flat"));
  }

  std::vector<int64_t> Layers(const ModelShape& shape) const override {
    std::vector<int64_t> layers;
    for (int64_t below = flat_ ? 0 : every_; below + 1 < shape.layers; below += every_) {
      layers.push_back(below + 1);
    }
    return layers;
  }

  Tensor Choose(LayerView& view) const override {
    const int64_t width = view.width();
    const int64_t recent = std::min(width, 1 + ShareOf(view.tokens(), recent_));
    const int64_t before = width - recent, least = std::min(least_, view.tokens() - recent);
    const int64_t count = ShareOf(before, GoesOn(view.layer(), view.shape().layers));
    if (count <= least || count >= before) return Numbers(view, width);
    const Tensor scores = view.Scratch(DType::kF32, {1, width});
    view.ops().rows->Fill(kForcedScore, scores);
    GivenByRecent(view, recent, Columns(scores, 0, before));
    view.ops().rows->Fill(kForcedScore, Columns(scores, 0, std::min(sinks_, before)));
    return Best(view, scores, count + recent);
  }

 private:
  // The share of the rows before the recent ones that goes on.
  double GoesOn(int64_t below, int64_t layers) const {
    if (flat_) return 1 - drop_;
    const double angle =
        std::numbers::pi * static_cast<double>(below) / static_cast<double>(layers);
    return drop_ * (std::cos(angle) + 1) / 2 + (1 - drop_);
  }

  // scores: [1, before], of a row that may be strided.
  void GivenByRecent(LayerView& view, int64_t recent, const Tensor& scores) const {
    const Tensor attention = view.WindowAttention(std::min(rows_, recent));
    const int64_t heads = attention.shape[0], rows = attention.shape[1], width = attention.shape[2];
    std::vector<float> weights;
    for (int64_t i = 0; i < heads * rows; ++i) {
      // Among the recent rows, of which these are the last.
      const int64_t place = recent - rows + i % rows;
      const float along =
          recent > 1 ? static_cast<float>(place) / static_cast<float>(recent - 1) : 0.0f;
      weights.push_back((1 + (weight_ - 1) * along) / static_cast<float>(heads * rows));
    }
    const Tensor sums = view.Scratch(DType::kF32, {1, width});
    view.ops().linear->MatMulNN(
        Upload(view, std::span<const float>(weights)).Reshape({1, 1, heads * rows}),
        attention.Reshape({1, heads * rows, width}), 1.0f, sums.Reshape({1, 1, width}));
    view.ops().rows->Convert(Columns(sums, 0, scores.shape[1]), scores);
  }

  double recent_, drop_;
  float weight_;
  bool flat_;
  int64_t sinks_, least_, every_, rows_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kThin,
    .id = "pyramidinfer",
    .paper = "arXiv:2405.12532",
    .summary = "rows to which the prompt's last part pays least leave behind every layer",
    .departures = {"what is decoded stays; the reference also gives up some of it, 16 entries at a "
                   "time",
                   "of the recent rows the last `rows` look back, which are all of them in prompts "
                   "of up to `rows` / `recent` tokens"},
    .bytes = "from the second layer on what is left of the prompt, and 4 bytes an entry for its "
             "position",
    .params = {RealParam("recent", 0.2, 0, 1, "share of the prompt, its end, that always goes on"),
               RealParam("drop", 0.1, 0, 1, "the share of rows that leaves behind the last layers"),
               RealParam("weight", 1.2, 0.001, 1000, "what the newest row counts, the oldest 1"),
               ChoiceParam("schedule", "cosine", {"cosine", "flat"},
                           "how the share that leaves grows: from nothing, or the same everywhere"),
               IntParam("sinks", 4, 0, 1 << 20, "first rows, which always go on"),
               IntParam("least", 64, 0, 1 << 24,
                        "rows before the recent ones that have to be left"),
               IntParam("every", 1, 1, 1 << 16, "layers from one choice to the next"),
               IntParam("rows", 256, 1, 4096, "most rows that look back")},
    .make = Make<PyramidInfer>(),
});

}  // namespace
}  // namespace kvgauge
