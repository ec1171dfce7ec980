// SPDX-License-Identifier: Apache-2.0
// Panels with AVX-512 and vdpbf16ps. For files named *_avx512bf16.cpp.
#pragma once

#include "cpu/isa/vector_math_avx512.h"
#include "cpu/linear/panel.h"

namespace kvgauge {
namespace {

// The left operand stays bf16; the instruction adds a pair's two products to the chain. It takes
// subnormal inputs as zero.
struct Bf16DotPanel {
  using Vec = Avx512Vector;
  using A = uint16_t;
  using B = uint16_t;
  static constexpr int kStepK = 2;
  static constexpr int64_t kOnePassRows = kPanelTileRows;
  static constexpr int64_t kBlockBytes = VectorBlockBytes<Avx512Vector>();

  template <int kRows, int kVectors>
  [[gnu::always_inline]] static void Step(const A* a, int64_t a_stride, const B* b,
                                          __m512 (&sum)[kRows][kVectors]) {
    __m512bh w[kVectors];
    Unroll<kVectors>([&](auto j) KVG_INLINE_LAMBDA {
      w[j] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + j * 32));
    });
    Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
      int32_t pair;
      std::memcpy(&pair, a + r * a_stride, sizeof(pair));
      const __m512bh x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
      Unroll<kVectors>([&](auto j)
                           KVG_INLINE_LAMBDA { sum[r][j] = _mm512_dpbf16_ps(sum[r][j], x, w[j]); });
    });
  }
};

// f16 stays in f32. An f16 value is exactly the sum of two bf16 values, but a pair of products then
// takes three vdpbf16ps (four with the last term) where f32 takes two FMAs, at equal rates and on
// the same pipes (measured on Zen 4).
struct Panels {
  using ThreadScope = NoThreadScope;
  using Vec = Avx512Vector;
  using F32 = F32Panel<Avx512Vector>;
  using F16 = F16Panel<Avx512Vector>;
  using Bf16 = Bf16DotPanel;
};

}  // namespace
}  // namespace kvgauge
