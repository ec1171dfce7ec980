// SPDX-License-Identifier: Apache-2.0
// Column sums of attention inside chunks of a prefill, not causal: folded as soon as a chunk is
// complete, from its queries and the keys that the cache then holds.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "methods/needs.h"
#include "runner/model.h"

namespace kvgauge {

// The sums of one prefill. Chunks are counted from the first of its rows that is in one, so the
// sums do not depend on how the rows come. One thread.
class ChunkSums {
 public:
  // For a prefill of `rows` rows into `cache`, which outlives the prefill.
  ChunkSums(const ModelConfig& config, const KvCache& cache, const ChunkAttention& kind,
            int64_t rows);

  const ChunkAttention& kind() const { return kind_; }
  // q: [rows, query_heads, key_dim], rotated, of the newest rows of the cache.
  void Add(int64_t layer, const Tensor& q);
  Tensor Of(int64_t layer) const;  // [query_heads, the layer's width after the prefill]

  int64_t bytes() const;
  static int64_t PlannedBytes(const ModelConfig& config, const ChunkAttention& kind, int64_t rows);

 private:
  // rows: [tokens of the chunk, query_heads * key_dim], whose first token is at `begin`.
  void Fold(int64_t layer, const Tensor& rows, int64_t begin);

  const ModelConfig& config_;
  const KvCache& cache_;
  const ChunkAttention kind_;
  int64_t begin_ = 0, end_ = 0;  // the tokens that are in chunks
  int64_t chunk_ = 0;            // rows of the largest chunk
  std::vector<int64_t> widths_;  // [layers]
  std::vector<Buffer> sums_;     // [layers] of [query_heads, width]
  std::vector<Buffer> pending_;  // [layers] queries of a chunk that is not complete
  std::vector<Buffer> work_;     // of each device
};

}  // namespace kvgauge
