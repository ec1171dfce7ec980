// SPDX-License-Identifier: Apache-2.0
// One layer decides for all above it: the rows that the last rows of the prompt pay most there go
// on, and the window itself.
//
// Paper: FastKV, arXiv:2502.01068; after dongwonjo/FastKV. Needs the attention of the last `window`
// prompt rows. Attention is summed over the rows of the window and the query heads and averaged
// along the rows before the window. The reference reduces each layer's entries besides, as SnapKV
// does, by a share of the prompt: the method file's other stages.
#include <algorithm>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/row_choice.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class FastKv final : public Thin {
 public:
  explicit FastKv(const Params& params)
      : layer_(params.Int("layer")),
        drop_(params.Real("drop")),
        window_(params.Int("window")),
        kernel_(params.Int("kernel")) {}

  Needs needs() const override { return {.window = window_}; }

  Status Check(const ModelShape& shape) const override {
    if (kernel_ % 2 == 0) {
      return BadInput(StrCat("kernel ", kernel_, " is even; expected an odd number"));
    }
    if (layer_ < shape.layers && shape.layers > 1) return {};
    return BadInput(StrCat("layer is ", layer_, ", and the model has ", shape.layers,
                           " layers; expected 1 .. ", shape.layers - 1, ", or 0 for their half"));
  }

  std::vector<int64_t> Layers(const ModelShape& shape) const override {
    return {layer_ > 0 ? layer_ : shape.layers / 2};
  }

  Tensor Choose(LayerView& view) const override {
    RowOps& ops = *view.ops().rows;
    const int64_t rows = view.width(), heads = view.shape().query_heads;
    const int64_t window = std::min(window_, rows), before = rows - window;
    const Tensor scores = view.Scratch(DType::kF32, {1, rows});
    ops.Fill(kForcedScore, Columns(scores, before, rows));
    if (before > 0) {
      const Tensor attention = view.WindowAttention(window);  // [heads, window, rows]
      const Tensor sums = view.Scratch(DType::kF32, {rows});
      ops.ReduceColumns(attention.Reshape({heads * window, rows}), Reduction::kSum, sums);
      view.ops().select->Pool(Columns(sums.Reshape({1, rows}), 0, before), kernel_,
                              Pooling::kAverage, Columns(scores, 0, before));
    }
    return Best(view, scores, std::clamp(ShareOf(rows, 1 - drop_), window, rows));
  }

 private:
  int64_t layer_;
  double drop_;
  int64_t window_, kernel_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kThin,
    .id = "fastkv",
    .paper = "arXiv:2502.01068",
    .summary = "the rows that the last rows pay most in one layer go on to all above",
    .bytes = "from its layer on what is left of the prompt, and 4 bytes an entry for its position",
    .params = {IntParam("layer", 0, 0, 1 << 16,
                        "the first layer that fewer rows reach; 0: half of them"),
               RealParam("drop", 0.8, 0, 1, "the share of the prompt that leaves"),
               IntParam("window", 8, 1, 4096, "last rows that look back, and stay"),
               IntParam("kernel", 7, 1, 4095, "rows that are averaged; odd")},
    .make = Make<FastKv>(),
});

}  // namespace
}  // namespace kvgauge
