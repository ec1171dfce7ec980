// SPDX-License-Identifier: Apache-2.0
// Panels with AMX tiles for bf16, AVX-512 for the rest. For files named *_amx.cpp.
#pragma once

#include "cpu/panel_tiles.h"
#include "cpu/vec_avx512.h"

namespace kvgauge {
namespace {

struct AmxEngine {
  // All eight tiles 16 rows x 64 bytes. Tile registers are per thread: every thread of a parallel
  // region opens a scope of its own. Released at the end, so that the kernel stops saving 8 KiB of
  // state at every context switch.
  class ThreadScope {
   public:
    ThreadScope() {
      struct alignas(64) {
        uint8_t palette = 1, start_row = 0, reserved[14] = {};
        uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
      } config;
      static_assert(sizeof(config) == 64);
      // GCC 12 tells its optimiser that _tile_loadconfig reads 8 bytes; without the barrier the
      // other stores may be dropped.
      asm volatile("" : : "r"(&config) : "memory");
      _tile_loadconfig(&config);
    }
    ~ThreadScope() { _tile_release(); }
    ThreadScope(const ThreadScope&) = delete;
    ThreadScope& operator=(const ThreadScope&) = delete;
  };

  template <int kTile>
  static void Zero() {
    _tile_zero(kTile);
  }
  template <int kTile>
  static void Load(const void* p, int64_t stride_bytes) {
    _tile_loadd(kTile, p, stride_bytes);
  }
  template <int kTile>
  static void Store(void* p, int64_t stride_bytes) {
    _tile_stored(kTile, p, stride_bytes);
  }
  template <int kSum, int kLeft, int kRight>
  static void Dot() {
    _tile_dpbf16ps(kSum, kLeft, kRight);
  }
};

struct Panels {
  using ThreadScope = AmxEngine::ThreadScope;
  using Vec = Avx512Vec;
  using F32 = F32Panel<Avx512Vec>;
  using F16 = F16Panel<Avx512Vec>;
  using Bf16 = Bf16TilePanel<AmxEngine>;
};

}  // namespace
}  // namespace kvgauge
