// SPDX-License-Identifier: Apache-2.0
// Tile registers in plain C++: what the instruction manual says they do, in f32. So what is built
// on them is tested where the hardware has none.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "core/dtype.h"

namespace kvgauge {

struct EmulatedTiles {
  struct Tile {
    char rows[16][64];
  };
  static inline thread_local Tile tiles[8];

  class ThreadScope {
   public:
    ThreadScope() {
      // Whatever was there before must not matter.
      for (Tile& tile : tiles) std::memset(tile.rows, 0x7f, sizeof(tile.rows));
      ++open;
    }
    ~ThreadScope() { --open; }
    static inline thread_local int open = 0;
  };
  struct VectorScope {
    VectorScope() {}  // user-provided: an unused variable of this type is no warning
  };

  template <int kTile>
  static void Zero() {
    std::memset(tiles[kTile].rows, 0, sizeof(tiles[kTile].rows));
  }
  template <int kTile>
  static void Load(const void* p, int64_t stride_bytes) {
    for (int r = 0; r < 16; ++r) {
      std::memcpy(tiles[kTile].rows[r], static_cast<const char*>(p) + r * stride_bytes, 64);
    }
  }
  template <int kTile>
  static void Store(void* p, int64_t stride_bytes) {
    for (int r = 0; r < 16; ++r) {
      std::memcpy(static_cast<char*>(p) + r * stride_bytes, tiles[kTile].rows[r], 64);
    }
  }
  template <int kSum, int kLeft, int kRight>
  static void Dot() {
    float sum[16][16];
    uint16_t left[16][32], right[16][16][2];
    std::memcpy(sum, tiles[kSum].rows, sizeof(sum));
    std::memcpy(left, tiles[kLeft].rows, sizeof(left));
    std::memcpy(right, tiles[kRight].rows, sizeof(right));
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 16; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < 16; ++k) {
          even += Bf16ToF32(left[m][2 * k]) * Bf16ToF32(right[k][n][0]);
          odd += Bf16ToF32(left[m][2 * k + 1]) * Bf16ToF32(right[k][n][1]);
        }
        sum[m][n] += even + odd;
      }
    }
    std::memcpy(tiles[kSum].rows, sum, sizeof(sum));
    EXPECT_EQ(ThreadScope::open, 1);
  }
};

}  // namespace kvgauge
