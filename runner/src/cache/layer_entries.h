// SPDX-License-Identifier: Apache-2.0
// What one layer of a sequence's cache holds: streams of keys and values in parts, and numbers
// beside the entries. How they are stored is the layer's layout (layer_layout.h). A copy shares
// blocks.
//
// A layer has parts, runs of entries that all heads store alike, in ascending order; new entries go
// to the last. Within a part each owner of keys, and of values, has a stream: a KV head, or a group
// of heads that share latents.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "methods/store_plan.h"
#include "runner/rope.h"
#include "src/cache/stream.h"

namespace kvgauge {

// What all layers of a cache have in common, but for the frequencies of local ones.
struct LayerSetup {
  KvFormat format;
  int64_t query_heads = 0;
  int64_t kv_heads = 0;
  bool mla = false;             // keys turn in their last dims: they are always stored rotated
  bool values_in_keys = false;  // MLA: one stream of latents and rotated parts
  bool rows_alone = false;      // of these, rows of which layers make keys and values anew
  bool windowed = false;        // some layer's rows see a window of positions only
  std::vector<float> slopes;    // ModelConfig::distance_slopes
  float rounded_scale = 0.0f;   // DistanceTable's
  RopeLayout rope_layout = RopeLayout::kHalf;
  RopeFrequencies frequencies;
  bool running = false;     // rows may join a head's newest entry (KvCache::EndRows)
  bool local_rope = false;  // the frequencies are those of LayerConfig::local_rope
  CachePools* pools = nullptr;
};

// What one head keeps, on the host.
using KeptEntries = std::vector<int32_t>;

struct LayerPart {
  std::vector<Stream> keys, values;  // [owners]; no values where they are in the keys

  std::vector<Stream>& of(KvSide side) { return side == KvSide::kKeys ? keys : values; }
  const std::vector<Stream>& of(KvSide side) const { return side == KvSide::kKeys ? keys : values; }
};

struct HeadEntries {
  explicit HeadEntries(BlockPool& pool);

  int64_t length = 0;
  bool has_positions = false;  // otherwise entry i is position i
  EntryArray positions;        // i32
  EntryArray log_weights;      // f32, or empty: 0
  EntryArray scores;           // f32, when the layer keeps them
  EntryArray second_scores;    // f32, when the layer keeps two numbers of each entry
  EntryArray rotations;        // i32, where keys turn by clipped positions

  std::array<EntryArray*, 5> arrays() {
    return {&positions, &log_weights, &scores, &second_scores, &rotations};
  }
  std::array<const EntryArray*, 5> arrays() const {
    return {&positions, &log_weights, &scores, &second_scores, &rotations};
  }
  EntryArray& score(int64_t which) { return which == 0 ? scores : second_scores; }
  const EntryArray& score(int64_t which) const { return which == 0 ? scores : second_scores; }
};

struct LayerEntries {
  explicit LayerEntries(std::shared_ptr<const LayerSetup> all);

  std::shared_ptr<const LayerSetup> setup;
  BlockPool* pool;  // of the device
  // What a prepare stage wrote for this layer, by side: [owners] of [heads * dim, rank].
  std::array<std::vector<Tensor>, 2> bases;
  KeyTurn turn;
  // Which stream holds the keys of each head, where any heads share some; empty: neighbours share
  // evenly.
  std::vector<int64_t> key_owners;
  std::vector<LayerPart> parts;
  std::vector<HeadEntries> heads;  // [kv_heads]
  int64_t kept_scores = 0;         // numbers of each entry: 0, 1 or 2
  bool by_entry = false;           // KvFormat::by_entry of plain streams

  Ops& ops() const { return pool->ops(); }
  int64_t length(int64_t head) const { return heads[static_cast<size_t>(head)].length; }
  int64_t width() const;  // of the longest head
  // The dims of a head's keys or values as the model has them.
  int64_t HeadDim(KvSide side) const {
    return side == KvSide::kKeys ? setup->format.key_dim : setup->format.value_dim;
  }
  // Which stream of a part holds a head's entries, and the first head of a stream.
  int64_t OwnerOf(KvSide side, int64_t head, size_t part = 0) const;
  int64_t FirstHeadOf(KvSide side, int64_t owner, size_t part = 0) const;
  // How many heads from there on a stream's rows are made of.
  int64_t HeadsOf(KvSide side, size_t part = 0) const;

  // A part of empty streams; none for values that are in the keys.
  using SpecOf = std::function<StreamSpec(KvSide side, int64_t owner)>;
  LayerPart NewPart(const std::array<int64_t, 2>& owners, BlockPool& of, const SpecOf& spec) const;
  // Entries from `first` on of an owner's stream, over all parts, as stored.
  void ReadStream(KvSide side, int64_t owner, int64_t first, Tensor rows) const;
  // Bytes of entries [first, last) of a head as they are stored, of its part where heads share a
  // stream; nothing for values that are in the keys.
  double BytesOf(KvSide side, int64_t head, int64_t first, int64_t last) const;
  std::vector<int32_t> Positions(int64_t head) const;
  // The numbers beside those entries, in that order; rotations are to be assigned anew.
  Result<HeadEntries> Gathered(int64_t head, const KeptEntries& kept,
                               const Tensor& log_weight) const;
};

// Head h of x [n, heads, dim] as [n, dim].
Tensor HeadRows(const Tensor& x, int64_t h);

}  // namespace kvgauge
