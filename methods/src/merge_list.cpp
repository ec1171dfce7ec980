// SPDX-License-Identifier: Apache-2.0
#include "methods/merge_list.h"

#include "methods/tensors.h"

namespace kvgauge {

void NormalizeMerge(LayerView& view, int64_t length, MergeList& list) {
  Ops& ops = view.ops();
  const int64_t n = list.from.shape[0];
  const Tensor sum = Filled(view, length, 1.0f);
  ops.select->ScatterAdd(AsColumn(list.weight), list.to, {}, AsColumn(sum));
  list.self = Filled(view, length, 1.0f);
  const Tensor self = list.self.Reshape({1, length});
  ops.rows->Combine(self, sum.Reshape({1, length}), Binary::kDivide, self);
  const Tensor of_target = view.Scratch(DType::kF32, {n});
  ops.select->Gather(AsColumn(sum), list.to, AsColumn(of_target));
  // No sum is below 1, but -1 gathers 0.
  const Tensor least = Filled(view, n, 1.0f), target_row = of_target.Reshape({1, n});
  ops.rows->Combine(target_row, least.Reshape({1, n}), Binary::kMax, target_row);
  const Tensor weight = view.Scratch(DType::kF32, {n});
  ops.rows->Combine(list.weight.Reshape({1, n}), of_target.Reshape({1, n}), Binary::kDivide,
                    weight.Reshape({1, n}));
  list.weight = weight;
}

}  // namespace kvgauge
