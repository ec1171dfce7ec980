// SPDX-License-Identifier: Apache-2.0
#include "methods/key_direction.h"

#include "methods/tensors.h"

namespace kvgauge {

void AwayFromMean(LayerView& view, const Tensor& keys, Tensor out) {
  Ops& ops = view.ops();
  const int64_t n = keys.shape[0], dim = keys.shape[1];
  // Unit vectors times the root of dim: the anchor's length does not matter.
  const Tensor units = view.Scratch(DType::kF32, {n, dim});
  const Tensor anchor = view.Scratch(DType::kF32, {dim});
  ops.rows->RmsNorm(keys, Filled(view, dim, 1.0f), 0.0f, 1e-20f, units);
  ops.rows->ReduceColumns(units, Reduction::kMean, anchor);
  ops.algebra->CosineSimilarity(keys, anchor.Reshape({1, dim}), out.Reshape({n, 1}));
  ops.rows->Affine(out.Reshape({1, n}), -1.0f, 0.0f, out.Reshape({1, n}));
}

}  // namespace kvgauge
