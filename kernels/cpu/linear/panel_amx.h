// SPDX-License-Identifier: Apache-2.0
// Panels with AMX tiles for bf16, AVX-512 for the rest. For files named *_amx.cpp.
#pragma once

#include "cpu/isa/vector_math_avx512.h"
#include "cpu/linear/panel_tiles.h"

namespace kvgauge {
namespace {

// Written in assembly because the compiler's own intrinsics are not sound: those of GCC 12 take
// only literal tile numbers, and tell the optimiser neither that a tile load reads memory nor that
// the configuration is longer than 8 bytes, so that stores to staged tiles may be dropped.
struct AmxEngine {
  // All eight tiles 16 rows x 64 bytes. Tile registers are per thread: every thread of a parallel
  // region opens a scope of its own. Released at the end, so that the kernel stops saving 8 KiB of
  // state at every context switch.
  class ThreadScope {
   public:
    ThreadScope() {
      struct alignas(64) Config {
        uint8_t palette = 1, start_row = 0, reserved[14] = {};
        uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
      };
      static_assert(sizeof(Config) == 64);
      const Config config;
      asm volatile("ldtilecfg %0" : : "m"(config));
    }
    ~ThreadScope() { asm volatile("tilerelease"); }
    ThreadScope(const ThreadScope&) = delete;
    ThreadScope& operator=(const ThreadScope&) = delete;
  };

  template <int kTile>
  static void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void Load(const void* p, int64_t stride_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(p), "r"(stride_bytes), "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  static void Store(void* p, int64_t stride_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(p), "r"(stride_bytes), "i"(kTile)
                 : "memory");
  }
  template <int kSum, int kLeft, int kRight>
  static void Dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kLeft), "i"(kRight));
  }
};

struct Panels {
  using ThreadScope = AmxEngine::ThreadScope;
  using Vec = Avx512Vector;
  using F32 = F32Panel<Avx512Vector>;
  using F16 = F16Panel<Avx512Vector>;
  using Bf16 = Bf16TilePanel<AmxEngine>;
};

}  // namespace
}  // namespace kvgauge
