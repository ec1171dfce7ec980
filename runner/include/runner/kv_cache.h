// SPDX-License-Identifier: Apache-2.0
// The plain full cache of one sequence: every entry, stored per layer and KV head in pages.
//
// Owns its memory and grows by whole pages. Entry i of every head is token i. Not thread-safe; one
// sequence has one cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "runner/config.h"

namespace kvgauge {

class KvCache {
 public:
  // `dtype`: f32, f16 or bf16. `frequencies` are those of the planned length (ComputeRope).
  KvCache(const ModelConfig& config, DType dtype, RopeFrequencies frequencies, Ops& ops);
  KvCache(KvCache&&) = default;

  // Makes pages for entries [0, entries), so that later appends do not allocate.
  void Reserve(int64_t entries);
  // Announces that entries [0, length) are written.
  void SetLength(int64_t length);

  int64_t length() const { return length_; }
  int64_t layer_count() const { return static_cast<int64_t>(layers_.size()); }
  const KvFormat& format() const { return format_; }
  const RopeFrequencies& frequencies() const { return frequencies_; }
  // One layer's heads; pages reach to what was reserved, length to SetLength.
  std::span<const KvHead> Layer(int64_t layer) const { return layers_[layer].heads; }
  // Where one layer's heads take entry `first_entry` and those after it.
  std::vector<KvTarget> Targets(int64_t layer, int64_t first_entry) const;

  int64_t payload_bytes() const;   // keys and values of the entries held
  int64_t resident_bytes() const;  // what the allocator holds

 private:
  struct LayerStore {
    std::vector<std::vector<void*>> key_pages, value_pages;  // [kv_heads][pages]
    std::vector<KvSegment> segments;                         // [kv_heads]
    std::vector<KvHead> heads;                               // [kv_heads], a segment each
  };

  KvFormat format_;
  RopeFrequencies frequencies_;
  Ops* ops_;
  std::vector<LayerStore> layers_;
  std::vector<Buffer> slabs_;
  int64_t length_ = 0;
  int64_t pages_ = 0;  // per head
};

}  // namespace kvgauge
