// SPDX-License-Identifier: Apache-2.0
#include "methods/largest_channels.h"

#include <algorithm>
#include <cmath>

#include "methods/tensors.h"

namespace kvgauge {

Tensor QueriesOfLargestChannels(LayerView& view, const Tensor& q, int64_t rank) {
  Ops& ops = view.ops();
  const int64_t group = q.shape[0], dim = q.shape[1];
  const auto count = static_cast<int32_t>(std::min(rank, dim));
  const Tensor query = view.Scratch(DType::kF32, {group, dim});
  const Tensor magnitude = view.Scratch(DType::kF32, {group, dim});
  ops.rows->Convert(q, query);
  ops.rows->Affine(query, -1.0f, 0.0f, magnitude);
  ops.rows->Combine(query, magnitude, Binary::kMax, magnitude);

  const Tensor total = view.Scratch(DType::kF32, {1, dim});
  const Tensor largest = view.Scratch(DType::kI32, {1, count});
  const Tensor is_kept = view.Scratch(DType::kF32, {dim});
  ops.rows->ReduceColumns(magnitude, Reduction::kSum, total[0]);
  ops.select->TopK(total, Upload(view, std::span(&count, 1)), largest);
  ops.select->Scatter(AsColumn(Filled(view, count, 1.0f)), largest[0], AsColumn(is_kept));

  // The scale over the root of the share of the magnitude: a query of zeros has all of it.
  const Tensor whole = view.Scratch(DType::kF32, {1, group});
  const Tensor held = view.Scratch(DType::kF32, {1, group});
  ops.rows->ReduceRows(magnitude, Reduction::kSum, whole[0]);
  ops.rows->Combine(magnitude, is_kept, Binary::kMultiply, magnitude);
  ops.rows->ReduceRows(magnitude, Reduction::kSum, held[0]);
  ops.rows->Affine(whole, 1.0f, 1e-30f, whole);
  ops.rows->Affine(held, 1.0f, 1e-30f, held);
  ops.rows->Combine(held, whole, Binary::kDivide, held);
  ops.rows->Activate(held, Activation::kLog, held);
  ops.rows->Affine(held, -0.5f, std::log(view.shape().attention_scale), held);
  ops.rows->Activate(held, Activation::kExp, held);

  ops.rows->Combine(query, is_kept, Binary::kMultiply, query);
  ops.rows->Combine(query, Spread(view, held[0], dim), Binary::kMultiply, query);
  return query;
}

}  // namespace kvgauge
