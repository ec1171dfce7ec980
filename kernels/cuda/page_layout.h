// SPDX-License-Identifier: Apache-2.0
// How this backend lays out a float page of one KV head.
//
// 16-bit pages lie as tensor cores take them: lane l of a warp finds the 16 bytes it multiplies at
// l times 16, so that a page goes from memory to registers in whole lines, without shared memory.
//   Keys: [4 groups of 16 entries][16 dims][32 lanes][8]: entries g and g + 8, dims 2t, 2t + 1, 2t
//   + 8, 2t + 9 of lane 4g + t. Dims are padded to 16. Values: [8 dims][2 groups of 32 entries][32
//   lanes][8]: dim g, entries 2t, 2t + 1, 2t + 8, 2t + 9 and 16 after those. Dims are padded to 8.
// 32-bit pages: keys [dim][64], values [64][dim padded to 4].
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "cuda/codec_view.h"

namespace kvgauge::cuda {

struct PageLayout {
  DType dtype;
  int key_dim, value_dim;

  KVG_BOTH bool wide() const { return dtype == DType::kF32; }
  KVG_BOTH int KeyChunks() const { return (key_dim + 15) / 16; }
  KVG_BOTH int ValueBlocks() const { return (value_dim + 7) / 8; }
  KVG_BOTH int64_t KeyBytes() const {
    return wide() ? int64_t{256} * key_dim : int64_t{2048} * KeyChunks();
  }
  KVG_BOTH int64_t ValueBytes() const {
    return wide() ? int64_t{1024} * ((value_dim + 3) / 4) : int64_t{1024} * ValueBlocks();
  }

  // In elements.
  KVG_BOTH int KeyIndex(int entry, int dim) const {
    if (wide()) return dim * kPageEntries + entry;
    const int lane = entry % 8 * 4 + dim % 8 / 2;
    const int part = (entry / 16 * KeyChunks() + dim / 16) * 32 + lane;
    return part * 8 + (entry % 16 / 8 * 2 + dim % 16 / 8) * 2 + dim % 2;
  }
  KVG_BOTH int ValueIndex(int entry, int dim) const {
    if (wide()) return entry * ((value_dim + 3) / 4 * 4) + dim;
    const int lane = dim % 8 * 4 + entry % 8 / 2;
    const int part = (dim / 8 * 2 + entry / 32) * 32 + lane;
    return part * 8 + (entry % 32 / 16 * 2 + entry % 16 / 8) * 2 + entry % 2;
  }
};

}  // namespace kvgauge::cuda
