// SPDX-License-Identifier: Apache-2.0
#include "methods/pooled_heads.h"

namespace kvgauge {

Buffer PooledHeads(Ops& ops, const Tensor& rows, int64_t dim, int64_t pooled) {
  const int64_t groups = rows.shape[0] / dim / pooled, columns = rows.shape[1];
  Buffer out = ops.memory->Allocate(groups * dim * columns * SizeOf(DType::kF32));
  for (int64_t g = 0; g < groups; ++g) {
    Tensor mean = out.As(DType::kF32, {groups * dim, columns}).Slice(g * dim, (g + 1) * dim);
    for (int64_t h = 0; h < pooled; ++h) {
      const int64_t begin = (g * pooled + h) * dim;
      ops.rows->Combine(mean, rows.Slice(begin, begin + dim), Binary::kAdd, mean);
    }
    ops.rows->Affine(mean, 1.0f / static_cast<float>(pooled), 0.0f, mean);
  }
  return out;
}

}  // namespace kvgauge
