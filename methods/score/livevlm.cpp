// SPDX-License-Identifier: Apache-2.0
// What the newest rows of pictures look at, averaged over all heads of a layer; all text scores
// above all pictures, later text higher.
//
// Paper: LiveVLM, arXiv:2505.15269, the scores of its Vision Sink Bucketing. Needs what entries
// show, and the attention of the last `window` rows, of which those of pictures count. A prompt
// without pictures is scored by all of them.
#include "methods/tensors.h"
#include "methods/window_scorer.h"

namespace kvgauge {
namespace {

class VisionToVision final : public WindowScorer {
 public:
  explicit VisionToVision(const Params& params) : WindowScorer(params) {}

  Needs needs() const override {
    Needs needs = WindowScorer::needs();
    needs.modality = true;
    return needs;
  }
  bool takes_parts_of_pictures() const override { return true; }

 protected:
  void ScoreBefore(LayerView& view, int64_t rows, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    const Tensor attention = view.WindowAttention(rows);  // [query_heads, rows, width]
    const int64_t heads = attention.shape[0], seen = attention.shape[1], before = out.shape[1];
    const Tensor shares = Spread(view, RowShares(view, seen), before);
    const Tensor weighted = view.Scratch(DType::kF32, {seen, before});
    const Tensor sums = view.Scratch(DType::kF32, {heads, before});
    for (int64_t h = 0; h < heads; ++h) {
      ops.Combine(Columns(attention[h], 0, before), shares, Binary::kMultiply, weighted);
      ops.ReduceColumns(weighted, Reduction::kSum, sums[h]);
    }
    const Tensor mean = view.Scratch(DType::kF32, {1, before});
    ops.ReduceColumns(sums, Reduction::kMean, mean[0]);
    const bool pictures = !view.VisualSpans().empty();
    const int64_t length = view.width();
    const Tensor text = view.Scratch(DType::kF32, {1, length});
    const Tensor shown = view.Scratch(DType::kF32, {1, length});
    for (int64_t h = 0; h < out.shape[0]; ++h) {
      const Tensor own = Columns(out.Slice(h, h + 1), 0, before);
      ops.Convert(mean, own);
      if (!pictures) continue;
      ops.Affine(view.OfModality(Modality::kText, h).Reshape({1, length}), -1.0f, 1.0f, shown);
      ops.Combine(own, Columns(shown, 0, before), Binary::kMultiply, own);
      ScoreText(view, h, text);
      ops.Combine(own, Columns(text, 0, before), Binary::kAdd, own);
    }
  }

 private:
  // What each of the last `seen` rows counts, 1 together: [seen].
  static Tensor RowShares(LayerView& view, int64_t seen) {
    RowOps& ops = *view.ops().rows;
    const Tensor text = view.OfModality(Modality::kText, 0, view.width() - seen);
    const Tensor shares = view.Scratch(DType::kF32, {1, seen});
    const Tensor number = view.Scratch(DType::kF32, {1});
    ops.Affine(text.Reshape({1, seen}), -1.0f, 1.0f, shares);
    ops.ReduceRows(shares, Reduction::kMax, number);
    ops.Affine(number.Reshape({1, 1}), -1.0f, 1.0f, number.Reshape({1, 1}));  // 1: all are text
    ops.Combine(shares, Spread(view, number, seen), Binary::kAdd, shares);
    ops.ReduceRows(shares, Reduction::kSum, number);
    ops.Combine(shares, Spread(view, number, seen), Binary::kDivide, shares);
    return shares.Reshape({seen});
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "livevlm",
    .paper = "arXiv:2505.15269",
    .summary = "attention of the newest rows of pictures, over all heads; text above them",
    .departures =
        {("the paper looks back from the last tokens of the video; here from those among the last "
          "`window` rows, so that fewer do where a question stands behind, and the question's own "
          "where it is longer than the window"),
         ("the accounts of the paper give an entry of a layer one score and do not say what "
          "becomes of heads; here it is the mean over all query heads, so that all heads keep the "
          "same entries"),
         ("the accounts do not say how many rows look back")},
    .params = {WindowScorer::WindowParam(32, "newest rows, of which those of pictures look back")},
    .make = Make<VisionToVision>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
