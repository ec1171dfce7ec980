// SPDX-License-Identifier: Apache-2.0
#include "methods/elite_window.h"

#include <algorithm>

#include "methods/tensors.h"

namespace kvgauge {

std::vector<ParamSpec> EliteWindow::Declare() {
  return {RealParam("alpha", 0.9, 0, 1,
                    "rows of the question count whose entries get at least this share of the most "
                    "that the last row gives to one of them"),
          IntParam("rows", 256, 1, 4096, "rows of the question that are looked at, at most")};
}

EliteWindow::EliteWindow(const Params& params)
    : alpha_(static_cast<float>(params.Real("alpha"))), rows_(params.Int("rows")) {}

Tensor EliteWindow::Shown(LayerView& view) {
  RowOps& ops = *view.ops().rows;
  const int64_t heads = view.shape().query_heads, width = view.width();
  const Tensor out = view.Scratch(DType::kF32, {heads, width});
  ops.Fill(0.0f, out);
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t head = h / view.shape().group(), n = view.lengths()[static_cast<size_t>(head)];
    if (n == 0) continue;
    const Tensor text = view.OfModality(Modality::kText, head).Reshape({1, n});
    ops.Affine(text, -1.0f, 1.0f, Columns(out.Slice(h, h + 1), 0, n));
  }
  return out;
}

Tensor EliteWindow::Importance(LayerView& view) const {
  RowOps& ops = *view.ops().rows;
  const int64_t heads = view.shape().query_heads, n = view.width();
  const int64_t asked = std::min(view.QuestionRows(rows_), n);
  const Tensor attention = view.WindowAttention(asked);
  const int64_t rows = attention.shape[1];  // of a turn fewer than asked for
  const Tensor shown = Shown(view);
  const Tensor most = view.Scratch(DType::kF32, {1});
  const Tensor sums = view.Scratch(DType::kF32, {rows}), line = sums.Reshape({1, rows});
  const Tensor elite = view.Scratch(DType::kF32, {1, rows});
  const Tensor counted = view.Scratch(DType::kF32, {1, n});
  const Tensor weights = view.Scratch(DType::kF32, {rows, n});
  const Tensor out = view.Scratch(DType::kF32, {heads, n});
  for (int64_t h = 0; h < heads; ++h) {
    // The window: 1 where the last row looks at the row's own entry.
    const int64_t end = view.lengths()[static_cast<size_t>(h / view.shape().group())];
    const Tensor last = Columns(attention[h].Slice(rows - 1, rows), end - rows, end);
    ops.ReduceRows(last, Reduction::kMax, most);
    ops.Affine(most.Reshape({1, 1}), alpha_, 0.0f, most.Reshape({1, 1}));
    ops.Combine(last, Spread(view, most, rows), Binary::kLess, elite);
    ops.Affine(elite, -1.0f, 1.0f, elite);
    // Softmax over pictures and the window alone is the attention by the sum of theirs.
    const Tensor pictures = shown.Slice(h, h + 1);
    ops.Affine(pictures, 1.0f, 0.0f, counted);
    ops.Affine(elite, 1.0f, 0.0f, Columns(counted, end - rows, end));
    ops.Combine(attention[h], counted.Reshape({n}), Binary::kMultiply, weights);
    ops.ReduceRows(weights, Reduction::kSum, sums);
    // The mean over the window: each row by its sum and by how many there are. Rows that are none
    // of it may have no sum.
    ops.Combine(line, Filled(view, rows, 1e-30f), Binary::kMax, line);
    ops.Combine(elite, line, Binary::kDivide, line);
    ops.ReduceRows(elite, Reduction::kSum, most);
    ops.Combine(line, Spread(view, most, rows), Binary::kDivide, line);
    ops.Combine(weights, Spread(view, sums, n), Binary::kMultiply, weights);
    ops.ReduceColumns(weights, Reduction::kSum, out[h]);
    ops.Combine(out.Slice(h, h + 1), pictures, Binary::kMultiply, out.Slice(h, h + 1));
  }
  return out;
}

}  // namespace kvgauge
