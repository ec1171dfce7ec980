// SPDX-License-Identifier: Apache-2.0
// Bases of latent streams, as a Prepare stage wrote them: constants of a model.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kv_codec.h"
#include "kernels/tensor.h"

namespace kvgauge {

// Orthonormal columns for `heads` neighbouring KV heads of one layer.
struct KvBasis {
  int64_t layer = 0;
  KvSide side = KvSide::kKeys;
  int64_t first_head = 0;
  int64_t heads = 1;
  Buffer memory;
  Tensor basis;  // [heads * dim, rank] f32
};

using KvBases = std::vector<KvBasis>;

}  // namespace kvgauge
