// SPDX-License-Identifier: Apache-2.0
// Blocks of neighbouring entries that all heads of a layer read together, and the keys that stand
// for them (InfLLM, ReKV).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/buffer_bytes.h"
#include "methods/stages.h"

namespace kvgauge {

// An error for models whose keys have no form before rotation, or are shared by all heads.
Status CheckEntryBlocks(const ModelShape& shape);

// The newest rows' rotated queries [rows, query_heads, key_dim], rows perhaps far apart, before
// their rotation.
Tensor UnturnedQueries(LayerView& view, const Tensor& q);

struct EntryBlocks final : Reader::State {
  int64_t first = 0;          // entry where the first block begins
  std::vector<int64_t> ends;  // where each block ends, less `first`; ascending
  Buffer keys;                // [blocks, query_heads * key_dim] f32, or kv_heads
  Buffer block_of;            // [entries of blocks] i32
  // [2, rotary_dim / 2] f32: cosines, then sines of one position; empty without rotation.
  Buffer turn;

  int64_t bytes() const override {
    return keys.size_bytes() + block_of.size_bytes() + turn.size_bytes();
  }
  // At most those of keys of so many heads, `shape` having the layer's own.
  static int64_t KeyBytes(const ModelShape& shape, int64_t heads, int64_t blocks) {
    return HostBufferBytes(blocks * heads * shape.key_dim * SizeOf(DType::kF32));
  }
  // At most those that Stand adds for so many entries of blocks.
  static int64_t PlaceBytes(const ModelShape& shape, int64_t entries) {
    if (entries == 0) return 0;
    return HostBufferBytes(entries * SizeOf(DType::kI32)) +
           HostBufferBytes(shape.rotary_dim * SizeOf(DType::kF32));
  }
  int64_t count() const { return static_cast<int64_t>(ends.size()); }
  int64_t entries() const { return ends.empty() ? 0 : ends.back(); }
  int64_t size(int64_t block) const;

  // Once `first` and `ends` are set. For each query head the `representatives` entries of a block
  // with the largest of `sums` [query_heads, width], all where it has fewer: keys become the means
  // of their keys before rotation. Queries will be turned as if they stood at `distance`.
  void Stand(LayerView& view, const Tensor& sums, int64_t representatives, int64_t distance);
  // The same where all entries of a block stand for it, and Scores is given queries before their
  // rotation. Mark then has nothing to go by.
  void StandTogether(LayerView& view) { StandByMeans(view, view.shape().group()); }
  // The same for readers that weigh keys themselves, which are [blocks, kv_heads * key_dim].
  void StandByKvHead(LayerView& view) { StandByMeans(view, 1); }
  // The entries before the first block and those of some blocks, which ascend.
  std::vector<int32_t> EntriesOf(std::span<const int32_t> picked) const;
  // As Reader::Fields, of blocks with keys of so many heads. What is read of Stand is at the
  // distance that was given there; without one it is of StandTogether or StandByKvHead.
  Status Fields(LayerView& view, int64_t heads, std::optional<int64_t> distance,
                StateFields& fields);
  // What each block's keys give the newest queries, [query_heads, key_dim], summed over the heads:
  // [1, blocks].
  Tensor Scores(LayerView& view, const Tensor& q) const;
  // Lets all heads read these blocks, [n] i32, and what is in none. words as Reader::Select has
  // them.
  void Mark(LayerView& view, const Tensor& blocks, const Tensor& words) const;

 private:
  void AllocateKeys(LayerView& view, int64_t heads);
  // Says which block each entry is in, and what turns queries to that distance.
  void PlaceAt(LayerView& view, int64_t distance);
  // The mean key of each block and KV head, so many times.
  void StandByMeans(LayerView& view, int64_t copies);
  // Entries of blocks as rows of that width, -1 behind the end of a shorter one.
  std::vector<int32_t> InRows(int64_t width) const;
  int64_t longest() const;
};

}  // namespace kvgauge
