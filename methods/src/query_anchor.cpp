// SPDX-License-Identifier: Apache-2.0
#include "methods/query_anchor.h"

#include "methods/tensors.h"

namespace kvgauge {

Tensor MeanRotationToCome(LayerView& view, int64_t count) {
  const Tensor rotations = view.Rotations(view.tokens(), count);
  if (rotations.empty()) return {};
  const Tensor mean = view.Scratch(DType::kF32, {2, rotations.shape[2]});
  for (const int64_t i : {0, 1}) {
    view.ops().rows->ReduceColumns(rotations[i], Reduction::kMean, mean[i]);
  }
  return mean;
}

void RaiseFirst(LayerView& view, int64_t sinks, Tensor out) {
  if (sinks == 0) return;
  Ops& ops = view.ops();
  const int64_t heads = out.shape[0];
  const Tensor best = view.Scratch(DType::kF32, {1, heads});
  const Tensor above = view.Scratch(DType::kF32, {1});
  ops.rows->ReduceRows(Columns(out, sinks, out.shape[1]), Reduction::kMax, best.Reshape({heads}));
  ops.rows->ReduceRows(best, Reduction::kMax, above);
  ops.rows->Affine(AsColumn(above), 1.0f, 1.0f, AsColumn(above));
  const Tensor first = view.Scratch(DType::kI32, {heads * sinks});  // zeros
  const Tensor raised = view.Scratch(DType::kF32, {heads * sinks, 1});
  ops.select->Gather(AsColumn(above), first, raised);
  ops.rows->Convert(raised.Reshape({heads, sinks}), Columns(out, 0, sinks));
}

}  // namespace kvgauge
