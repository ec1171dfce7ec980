// SPDX-License-Identifier: Apache-2.0
// Panels with AVX2, FMA and F16C. For files named *_avx2.cpp.
#pragma once

#include <immintrin.h>

#include "cpu/panel.h"

namespace kvgauge {
namespace {

struct Avx2Vec {
  static constexpr int kLanes = 8;
  static constexpr int kRegisters = 16;
  using F = __m256;

  static F Zero() { return _mm256_setzero_ps(); }
  static F Set1(float x) { return _mm256_set1_ps(x); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static F MulAdd(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }

  static F LoadBf16(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(Load128(p)), 16));
  }
  static F LoadBf16Even(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(Load256(p), 16));
  }
  static F LoadBf16Odd(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_and_si256(Load256(p), _mm256_set1_epi32(-65536)));
  }
  static F LoadF16(const uint16_t* p) { return _mm256_cvtph_ps(Load128(p)); }
  // Rounded to nearest even; NaN stays NaN.
  static void StoreBf16(uint16_t* p, F v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i wide = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(wide, wide), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }
  static void StoreF16(uint16_t* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

 private:
  static __m256i Load256(const uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static __m128i Load128(const uint16_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
};

struct Panels {
  using ThreadScope = NoThreadScope;
  using Vec = Avx2Vec;
  using F32 = F32Panel<Avx2Vec>;
  using F16 = F16Panel<Avx2Vec>;
  using Bf16 = Bf16WidenPanel<Avx2Vec>;
};

}  // namespace
}  // namespace kvgauge
