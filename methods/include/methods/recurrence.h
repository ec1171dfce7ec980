// SPDX-License-Identifier: Apache-2.0
// When attention came back to an entry: scores of methods for long answers.
#pragma once

#include "methods/layer_view.h"

namespace kvgauge {

// Calls `step(row, seen, time)` for each of the last `rows` rows of the prompt, chunk or turn in
// order, fewer where it is shorter: row [kv_heads, seen] is the most that a query head of the KV
// head pays to each entry that the row sees, `time` the number of tokens up to the row, itself
// included.
template <class Step>
void ForLastRows(LayerView& view, int64_t rows, Step step);

// The same of the newest decoded row: [kv_heads, width].
Tensor MostOfGroup(LayerView& view, const Tensor& attention);
// 1 where a number of `row` is at least `least`, else 0; same shape.
Tensor AtLeast(LayerView& view, const Tensor& row, float least);

template <class Step>
void ForLastRows(LayerView& view, int64_t rows, Step step) {
  const int64_t heads = view.shape().query_heads, n = view.width();
  if (n == 0) return;
  const Tensor attention = view.WindowAttention(rows < n ? rows : n);  // [query_heads, rows, n]
  rows = attention.shape[1];
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t seen = n - rows + r + 1;
    Tensor row(attention[0][r].data, DType::kF32, {heads, seen}, attention.device);
    row.stride[0] = attention.stride[0];
    step(MostOfGroup(view, row), seen, static_cast<float>(view.tokens() - rows + r + 1));
  }
}

}  // namespace kvgauge
