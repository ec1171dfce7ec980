// SPDX-License-Identifier: Apache-2.0
// Bases for stores of latents, without the singular values that take minutes on an emulator: half
// of the coordinates of each head as they are.
#pragma once

#include <vector>

#include "methods/stages.h"

namespace kvgauge {

class HalfBases final : public Prepare {
 public:
  Status Transform(WeightView& weights) const override {
    const ModelShape& shape = weights.shape();
    Ops& ops = weights.ops();
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        const int64_t dim = side == KvSide::kKeys ? shape.key_dim : shape.value_dim;
        const int64_t rank = dim / 2;
        std::vector<float> columns(static_cast<size_t>(dim * rank));
        for (int64_t i = 0; i < rank; ++i) columns[static_cast<size_t>(2 * i * rank + i)] = 1.0f;
        const Buffer memory = ops.memory->Allocate(dim * rank * SizeOf(DType::kF32));
        const Tensor basis = memory.As(DType::kF32, {dim, rank});
        ops.memory->Copy(View(columns, {dim, rank}), basis);
        for (int64_t head = 0; head < shape.kv_heads; ++head) {
          const Status written = weights.WriteBasis(layer, side, head, 1, basis);
          if (!written.ok()) return written;
        }
      }
    }
    return {};
  }
  bool writes_bases() const override { return true; }
};

}  // namespace kvgauge
