// SPDX-License-Identifier: Apache-2.0
#include "methods/recurrence.h"

#include "methods/tensors.h"

namespace kvgauge {

Tensor MostOfGroup(LayerView& view, const Tensor& attention) {
  const int64_t kv_heads = view.shape().kv_heads, group = view.shape().group();
  const Tensor most = view.Scratch(DType::kF32, {kv_heads, attention.shape[1]});
  for (int64_t h = 0; h < kv_heads; ++h) {
    view.ops().rows->ReduceColumns(attention.Slice(h * group, (h + 1) * group), Reduction::kMax,
                                   most[h]);
  }
  return most;
}

Tensor AtLeast(LayerView& view, const Tensor& row, float least) {
  RowOps& ops = *view.ops().rows;
  const Tensor is = view.Scratch(DType::kF32, {row.shape[0], row.shape[1]});
  ops.Combine(row, Filled(view, row.shape[1], least), Binary::kLess, is);
  ops.Affine(is, -1.0f, 1.0f, is);
  return is;
}

}  // namespace kvgauge
