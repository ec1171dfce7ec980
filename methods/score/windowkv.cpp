// SPDX-License-Identifier: Apache-2.0
// Windows of neighbouring entries by the attention of the last prompt rows, the same for all heads.
//
// Paper: WindowKV, arXiv:2503.17922. Needs the attention of the last `window` prompt rows. A window
// of `size` entries has the mean over query heads of the mean of its entries (`mode` aggregation,
// for summaries and code), or of the upper half of them (localisation, for questions); all of its
// entries have that score.
// Departures: `mode` is a parameter, where the reference asks a classifier of tasks; every layer
// chooses for itself, where the reference reuses the choice of the first layer of a group.
#include <algorithm>

#include "methods/tensors.h"
#include "methods/window_scorer.h"

namespace kvgauge {
namespace {

class WindowKv final : public WindowScorer {
 public:
  explicit WindowKv(const Params& params)
      : WindowScorer(params),
        size_(params.Int("size")),
        upper_half_(params.Text("mode") == "localisation") {}

 protected:
  void ScoreBefore(LayerView& view, int64_t rows, Tensor out) const override {
    const int64_t n = out.shape[1], full = n / size_ * size_;
    const Tensor mean = MeanAttention(view, rows, n);  // [query_heads, n]
    const Tensor scores = view.Scratch(DType::kF32, {1, n});
    if (full > 0) Rate(view, mean, 0, full / size_, size_, scores);
    if (full < n) Rate(view, mean, full, 1, n - full, scores);
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      view.ops().rows->Convert(scores, out.Slice(h, h + 1));
    }
  }

 private:
  // `count` windows of `size` entries from `begin` on.
  void Rate(LayerView& view, const Tensor& mean, int64_t begin, int64_t count, int64_t size,
            const Tensor& scores) const {
    RowOps& ops = *view.ops().rows;
    const int64_t heads = mean.shape[0], width = count * size,
                  half = std::max<int64_t>(1, size / 2);
    const Tensor of_head = view.Scratch(DType::kF32, {count, size});
    const Tensor all = view.Scratch(DType::kF32, {heads, count});
    for (int64_t h = 0; h < heads; ++h) {
      ops.Convert(Columns(mean.Slice(h, h + 1), begin, begin + width), of_head.Reshape({1, width}));
      if (upper_half_) {
        SumBest(view, of_head, half, all[h]);
      } else {
        ops.ReduceRows(of_head, Reduction::kMean, all[h]);
      }
    }
    if (upper_half_) ops.Affine(all, 1.0f / static_cast<float>(half), 0.0f, all);
    const Tensor windows = view.Scratch(DType::kF32, {count});
    ops.ReduceColumns(all, Reduction::kMean, windows);
    ops.Convert(Spread(view, windows, size).Reshape({1, width}),
                Columns(scores, begin, begin + width));
  }

  // The sum of the `half` largest of each row into sums; rows are changed.
  static void SumBest(LayerView& view, const Tensor& rows, int64_t half, const Tensor& sums) {
    RowOps& ops = *view.ops().rows;
    const Tensor part = view.Scratch(DType::kF32, {rows.shape[0], rows.shape[1]});
    const Tensor one = view.Scratch(DType::kF32, {1, rows.shape[0]});
    const Tensor sum = sums.Reshape({1, rows.shape[0]});
    ops.Fill(0.0f, sum);
    for (int64_t i = 0; i < half; ++i) {
      const Tensor best = MarkBest(view, rows);
      ops.Combine(rows, best, Binary::kMultiply, part);
      ops.ReduceRows(part, Reduction::kSum, one[0]);
      ops.Combine(sum, one, Binary::kAdd, sum);
      // Below any attention.
      ops.Affine(best, -kTaken, 0.0f, best);
      ops.Combine(rows, best, Binary::kAdd, rows);
    }
  }

  static constexpr float kTaken = 1e6f;
  int64_t size_;
  bool upper_half_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "windowkv",
    .paper = "arXiv:2503.17922",
    .summary = "windows of entries by the attention of the last prompt rows",
    .departures = {"the mode is a parameter, where the reference asks a classifier of tasks",
                   "every layer chooses for itself, where a group reuses its first layer's choice"},
    .params = {WindowScorer::WindowParam(16), IntParam("size", 8, 1, 4096, "entries of a window"),
               ChoiceParam("mode", "aggregation", {"aggregation", "localisation"},
                           "the mean of a window's entries, or of the upper half of them; the "
                           "reference takes 32 rows for the latter")},
    .make = Make<WindowKv>(),
});

}  // namespace
}  // namespace kvgauge
