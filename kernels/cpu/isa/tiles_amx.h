// SPDX-License-Identifier: Apache-2.0
// The tile registers of AMX for bf16. For files named *_amx.cpp.
#pragma once

#include <cstdint>

#include "cpu/isa/vector_math_avx512.h"

namespace kvgauge {
namespace {  // for the reason given in panel.h

// Eight tiles of 16 rows x 64 bytes. Tile registers are per thread.
//
// Written in assembly because the compiler's own intrinsics are not sound: those of GCC 12 take
// only literal tile numbers, and tell the optimiser neither that a tile load reads memory nor that
// the configuration is longer than 8 bytes, so that stores to staged tiles may be dropped.
struct AmxEngine {
  // Every product stands between these two, in each thread.
  static void Begin() {
    struct alignas(64) Config {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static_assert(sizeof(Config) == 64);
    const Config config;
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  // The kernel then no longer saves 8 KiB of state at every context switch.
  static void End() { asm volatile("tilerelease"); }

  class ThreadScope {
   public:
    ThreadScope() { Begin(); }
    ~ThreadScope() { End(); }
    ThreadScope(const ThreadScope&) = delete;
    ThreadScope& operator=(const ThreadScope&) = delete;
  };

  // Vectors round as tiles do while this lives: denormals count as 0.
  using VectorScope = DenormalsAreZero;

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

}  // namespace
}  // namespace kvgauge
