// SPDX-License-Identifier: Apache-2.0
#include "methods/window_scorer.h"

#include <algorithm>

#include "methods/tensors.h"

namespace kvgauge {

ParamSpec WindowScorer::WindowParam(int64_t rows, std::string help) {
  return IntParam("window", rows, 1, 4096, std::move(help) + "; their own entries stay");
}

void WindowScorer::Score(LayerView& view, Tensor out) const {
  RowOps& ops = *view.ops().rows;
  const int64_t n = view.width();
  int64_t rows = window_;
  for (const int64_t length : view.lengths()) rows = std::min(rows, length);
  if (rows < n) {
    const Tensor rest = Columns(out, 0, n - rows);
    view.decoding() && !slides_ ? ScoreStep(view, rest) : ScoreBefore(view, rows, rest);
  }
  for (int64_t h = 0; h < out.shape[0]; ++h) {
    const int64_t length = view.lengths()[static_cast<size_t>(h)];
    const Tensor row = out.Slice(h, h + 1);
    const Tensor tail = Columns(row, length - rows, length), none = Columns(row, length, n);
    if (rows > 0) ops.Fill(kForcedScore, tail);
    if (length < n) ops.Fill(0.0f, none);
  }
}

void WindowScorer::ScoreStep(LayerView&, Tensor) const {
  KVG_CHECK(false, "this scorer does not go on while decoding");
}

Tensor WindowScorer::MeanAttention(LayerView& view, int64_t rows, int64_t before) {
  const int64_t heads = view.shape().query_heads;
  const Tensor attention = view.WindowAttention(rows);  // [query_heads, rows, width]
  const Tensor mean = view.Scratch(DType::kF32, {heads, before});
  RowOps& ops = *view.ops().rows;
  // Rows of a few thousand entries are too little for threads to share each of them.
  constexpr double kNumber_ns = 0.2;
  view.ops().tasks->ForEach(heads, kNumber_ns * static_cast<double>(rows * before), [&](int64_t h) {
    ops.ReduceColumns(Columns(attention[h], 0, before), Reduction::kMean, mean[h]);
    const int64_t length = view.lengths()[static_cast<size_t>(h / view.shape().group())];
    const int64_t own = length - (view.width() - before);
    if (own < before) ops.Fill(0.0f, Columns(mean.Slice(h, h + 1), own, before));
  });
  return mean;
}

void RowMoments(RowOps& ops, const Tensor& a, const Tensor& centred, const Tensor& mean,
                const Tensor& variance) {
  const int64_t rows = a.shape[0], n = a.shape[1];
  ops.ReduceColumns(a, Reduction::kMean, mean);
  ops.Combine(a, mean, Binary::kSubtract, centred);
  ops.ReduceColumns(centred, Reduction::kSumSquares, variance);
  const Tensor row = variance.Reshape({1, n});
  ops.Affine(row, 1.0f / static_cast<float>(std::max<int64_t>(rows - 1, 1)), 0.0f, row);
}

}  // namespace kvgauge
