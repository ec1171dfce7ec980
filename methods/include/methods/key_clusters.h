// SPDX-License-Identifier: Apache-2.0
// Runs of keys as clusters of like direction.
#pragma once

#include <cstdint>

#include "core/result.h"
#include "kernels/buffer_bytes.h"
#include "methods/layer_view.h"
#include "methods/state_fields.h"

namespace kvgauge {

// Clusters of `members` neighbouring entries of one head.
struct KeyClusters {
  int64_t count = 0, members = 0;
  Buffer means;       // [count, key_dim] f32: of the keys as they are; 0 where a cluster is empty
  Buffer sizes;       // [count] f32
  Buffer assignment;  // [members] i32

  Tensor Means(int64_t dim) const { return means.As(DType::kF32, {count, dim}); }
  Tensor Sizes() const { return sizes.As(DType::kF32, {count}); }
  Tensor Assignment() const { return assignment.As(DType::kI32, {members}); }

  // At most those of means and assignment.
  static int64_t MostBytes(int64_t count, int64_t members, int64_t dim) {
    return HostBufferBytes(count * dim * SizeOf(DType::kF32)) +
           HostBufferBytes(members * SizeOf(DType::kI32));
  }

  // As Reader::Fields, of `most` members at most. Sizes follow from the assignment.
  Status Fields(LayerView& view, int64_t most, StateFields& fields);
};

// Clusters of the head's entries [first, first + members) by the directions of their keys, from
// evenly spaced ones in `iterations` rounds.
KeyClusters ClusterKeys(LayerView& view, int64_t head, int64_t first, int64_t members,
                        int64_t count, int iterations);

}  // namespace kvgauge
