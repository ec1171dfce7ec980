// SPDX-License-Identifier: Apache-2.0
#include "methods/window_scorer.h"

#include <algorithm>

#include "methods/tensors.h"

namespace kvgauge {

ParamSpec WindowScorer::WindowParam(int64_t rows, std::string help) {
  return IntParam("window", rows, 1, 4096, std::move(help) + "; their own entries stay");
}

void WindowScorer::Score(LayerView& view, Tensor out) const {
  const int64_t n = view.width(), rows = std::min(window_, n), before = n - rows;
  const Tensor tail = Columns(out, before, n);
  view.ops().rows->Fill(kForcedScore, tail);
  if (before == 0) return;
  const Tensor rest = Columns(out, 0, before);
  view.decoding() ? ScoreStep(view, rest) : ScoreBefore(view, rows, rest);
}

void WindowScorer::ScoreStep(LayerView&, Tensor) const {
  KVG_CHECK(false, "this scorer does not go on while decoding");
}

Tensor WindowScorer::MeanAttention(LayerView& view, int64_t rows, int64_t before) {
  const int64_t heads = view.shape().query_heads;
  const Tensor attention = view.WindowAttention(rows);  // [query_heads, rows, width]
  const Tensor mean = view.Scratch(DType::kF32, {heads, before});
  for (int64_t h = 0; h < heads; ++h) {
    view.ops().rows->ReduceColumns(Columns(attention[h], 0, before), Reduction::kMean, mean[h]);
  }
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
