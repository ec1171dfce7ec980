// SPDX-License-Identifier: Apache-2.0
// How a chat template behind the pictures shares its attention among them; all text scores above
// all pictures, later text higher.
//
// Paper: StreamMem, arXiv:2508.15717, its saliency. Needs what entries show, and the attention of
// the last `window` prompt rows, which stand for the template: the end of a turn and the beginning
// of the answer. A row's attention is a softmax over the entries of pictures alone; rows, then the
// query heads of a KV head are averaged.
#include "methods/tensors.h"
#include "methods/window_scorer.h"

namespace kvgauge {
namespace {

constexpr float kLeastSum = 1e-30f;  // where a row looks at no picture

class StreamMemScore final : public WindowScorer {
 public:
  explicit StreamMemScore(const Params& params) : WindowScorer(params) {}

  Needs needs() const override {
    Needs needs = WindowScorer::needs();
    needs.modality = true;
    return needs;
  }
  bool takes_parts_of_pictures() const override { return true; }
  bool takes_uneven() const override { return true; }
  int64_t rows_behind_chunks() const override { return protects(); }

 protected:
  void ScoreBefore(LayerView& view, int64_t rows, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    const Tensor attention = view.WindowAttention(rows);  // [query_heads, rows, width]
    const int64_t group = view.shape().group(), seen = attention.shape[1];
    for (int64_t h = 0; h < out.shape[0]; ++h) {
      const int64_t length = view.lengths()[static_cast<size_t>(h)], before = length - rows;
      if (before <= 0) continue;
      const Tensor shown = view.Scratch(DType::kF32, {1, length});
      ops.Affine(view.OfModality(Modality::kText, h).Reshape({1, length}), -1.0f, 1.0f, shown);
      const Tensor means = view.Scratch(DType::kF32, {group, before});
      const Tensor sums = view.Scratch(DType::kF32, {seen});
      const Tensor shares = view.Scratch(DType::kF32, {seen, before});
      const Tensor least = Filled(view, seen, kLeastSum);
      for (int64_t q = 0; q < group; ++q) {
        ops.Combine(Columns(attention[h * group + q], 0, before), shown[0].Slice(0, before),
                    Binary::kMultiply, shares);
        ops.ReduceRows(shares, Reduction::kSum, sums);
        ops.Combine(sums.Reshape({1, seen}), least.Reshape({1, seen}), Binary::kMax,
                    sums.Reshape({1, seen}));
        ops.Combine(shares, Spread(view, sums, before), Binary::kDivide, shares);
        ops.ReduceColumns(shares, Reduction::kMean, means[q]);
      }
      const Tensor own = Columns(out.Slice(h, h + 1), 0, before);
      ops.ReduceColumns(means, Reduction::kMean, own[0]);
      const Tensor text = view.Scratch(DType::kF32, {1, length});
      ScoreText(view, h, text);
      ops.Combine(own, Columns(text, 0, before), Binary::kAdd, own);
    }
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "streammem",
    .paper = "arXiv:2508.15717",
    .summary = "attention of a chat template among the entries of pictures; text above them",
    .departures =
        {("the template is the last tokens of the prompt, and how many is a parameter, by default "
          "those of Qwen's: the end of a turn, a line break, the beginning of a turn, assistant, a "
          "line break"),
         ("the paper does not say what becomes of heads; here each KV head has scores of its own, "
          "which are means over its query heads"),
         ("with compress_at chunk the template stands behind each chunk, and before the question "
          "behind the last picture, as in the paper; a prompt that is read whole is scored from "
          "where its template stands, behind the question")},
    .params = {WindowScorer::WindowParam(5, "prompt rows that are the template")},
    .make = Make<StreamMemScore>(),
});

}  // namespace
}  // namespace kvgauge
