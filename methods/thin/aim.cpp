// SPDX-License-Identifier: Apache-2.0
// Rows of pictures leave behind every layer of the upper half: those that a walk along the layer's
// attention reaches least.
//
// Paper: AIM, arXiv:2412.03248, its second half; after LaVi-Lab/AIM. Needs the attention of all
// rows. Each row's weights are raised to the power `sharpness` and made to sum to 1 again, which is
// a softmax of that much lower temperature. The walk begins everywhere and takes `steps` steps; a
// row counts by the squares of what each query head's walk has there. A further share of what the
// prompt had leaves behind each layer.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/row_choice.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Aim final : public Thin {
 public:
  explicit Aim(const Params& params)
      : choice_(params),
        start_(params.Real("start")),
        drop_(params.Real("drop")),
        sharpness_(params.Int("sharpness")),
        steps_(params.Int("steps")),
        rows_(params.Int("window")) {}

  Needs needs() const override {
    Needs needs = choice_.needs();
    needs.window = rows_;
    return needs;
  }

  Status Check(const ModelShape& shape) const override {
    if (First(shape) + 1 < shape.layers) return {};
    return BadInput(StrCat("no rows leave below the last of the model's ", shape.layers,
                           " layers, as the first to let some go is number ", First(shape),
                           "; expected a deeper model or a smaller start"));
  }

  std::vector<int64_t> Layers(const ModelShape& shape) const override {
    std::vector<int64_t> layers;
    for (int64_t below = First(shape); below + 1 < shape.layers; ++below) {
      layers.push_back(below + 1);
      if (GoesOn(shape, below) == 0) break;
    }
    return layers;
  }

  Tensor Choose(LayerView& view) const override {
    const double share = GoesOn(view.shape(), view.layer());
    return choice_.Best(view, Reached(view), ShareOf(choice_.CandidatesOf(view), share));
  }

 private:
  // The first layer behind which rows leave.
  int64_t First(const ModelShape& shape) const {
    return static_cast<int64_t>(start_ * static_cast<double>(shape.layers));
  }
  double GoesOn(const ModelShape& shape, int64_t below) const {
    return std::max(0.0, 1 - static_cast<double>(below - First(shape) + 1) * drop_);
  }

  // Sum over query heads of the squares: [1, width].
  Tensor Reached(LayerView& view) const {
    RowOps& ops = *view.ops().rows;
    const int64_t n = view.width();
    const Tensor attention = view.WindowAttention(std::min(rows_, n));
    const int64_t rows = attention.shape[1];  // of a turn fewer than asked for
    const Tensor base = view.Scratch(DType::kF32, {rows, n});
    const Tensor raised = view.Scratch(DType::kF32, {rows, n});
    const Tensor sums = view.Scratch(DType::kF32, {1, rows});
    const Tensor from = view.Scratch(DType::kF32, {1, rows});
    const Tensor walk = view.Scratch(DType::kF32, {1, n});
    const Tensor total = view.Scratch(DType::kF32, {1, n});
    for (int64_t h = 0; h < attention.shape[0]; ++h) {
      Raise(ops, attention[h], base, raised);
      ops.ReduceRows(raised, Reduction::kSum, sums.Reshape({rows}));
      ops.Fill(1 / static_cast<float>(n), walk);
      for (int64_t step = 0; step < steps_; ++step) {
        ops.Combine(Columns(walk, n - rows, n), sums, Binary::kDivide, from);
        view.ops().linear->MatMulNN(from.Reshape({1, 1, rows}), raised.Reshape({1, rows, n}), 1.0f,
                                    walk.Reshape({1, 1, n}));
      }
      ops.Combine(walk, walk, Binary::kMultiply, walk);
      ops.Combine(total, walk, Binary::kAdd, total);
    }
    return total;
  }

  // weights ^ sharpness but for a factor, which keeps the largest of a row in the range of f32: it
  // lies between 1 / n and 1.
  void Raise(RowOps& ops, const Tensor& weights, const Tensor& base, const Tensor& out) const {
    ops.Affine(weights, std::sqrt(static_cast<float>(weights.shape[1])), 0.0f, base);
    bool begun = false;
    for (int64_t left = sharpness_; left > 0; left /= 2) {
      if (left % 2 == 1 && begun) ops.Combine(out, base, Binary::kMultiply, out);
      if (left % 2 == 1 && !begun) ops.Convert(base, out);
      begun = begun || left % 2 == 1;
      if (left > 1) ops.Combine(base, base, Binary::kMultiply, base);
    }
  }

  RowChoice choice_;
  double start_, drop_;
  int64_t sharpness_, steps_, rows_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kThin,
    .id = "aim",
    .paper = "arXiv:2412.03248",
    .summary = "rows that a walk along a layer's attention reaches least leave layer by layer",
    .departures = {"rows that have left are gone; the reference hides them, and they go on taking "
                   "part in the walk",
                   "of a prompt longer than `window` its last rows take steps",
                   "the reference names the layers 14 to 27 of 28; here it is a share of them"},
    .bytes = "from the layers of its upper half on what is left of the prompt, and 4 bytes an "
             "entry for its position",
    .params = RowChoice::Declare(
        "visual",
        {RealParam("start", 0.5, 0, 1, "share of the layers behind which no row leaves"),
         RealParam("drop", 0.125, 0, 1,
                   "the share of the candidates that leaves behind each layer"),
         IntParam("sharpness", 10, 1, 16, "how many times lower the temperature of the walk is"),
         IntParam("steps", 5, 1, 64, "of the walk"),
         IntParam("window", 4096, 1, 4096, "most rows that take steps")}),
    .make = Make<Aim>(),
});

}  // namespace
}  // namespace kvgauge
