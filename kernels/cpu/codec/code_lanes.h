// SPDX-License-Identifier: Apache-2.0
// Lanes of lanes.h to and from codes of one byte.
#pragma once

#include "cpu/isa/lanes.h"

namespace kvgauge {
namespace {

KVG_INLINE U8 NarrowCodes(I codes) {
#if defined(__AVX512F__)
  return (U8)_mm512_maskz_cvtepi32_epi8(kAllLanes, (__m512i)codes);
#elif defined(__AVX2__)  // gcc 12 takes the generic conversion apart
  const __m128i low = _mm256_castsi256_si128((__m256i)codes);
  const __m128i high = _mm256_extracti128_si256((__m256i)codes, 1);
  const __m128i words = _mm_packus_epi32(low, high);
  const int64_t bytes = _mm_cvtsi128_si64(_mm_packus_epi16(words, words));
  return LoadAs<U8>(&bytes);
#else
  return __builtin_convertvector(codes, U8);
#endif
}
KVG_INLINE void StoreCodes(uint8_t* p, I codes, Whole) { StoreAs(p, NarrowCodes(codes)); }
KVG_INLINE void StoreCodes(uint8_t* p, I codes, Part part) {
  uint8_t lanes[kLanes];
  StoreAs(lanes, NarrowCodes(codes));
  for (int i = 0; i < part.count; ++i) p[i] = lanes[i];
}
KVG_INLINE U WidenCodes(U8 codes) {
#if defined(__AVX512F__)
  return (U)_mm512_maskz_cvtepu8_epi32(kAllLanes, (__m128i)codes);
#elif defined(__AVX2__)
  int64_t bytes;
  std::memcpy(&bytes, &codes, sizeof bytes);
  return (U)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes));
#else
  return __builtin_convertvector(codes, U);
#endif
}
// gcc 12 takes the generic conversion of bytes to words apart.
KVG_INLINE U16 WidenToWords(U8 codes) {
#if defined(__AVX512F__)
  return (U16)_mm256_cvtepu8_epi16((__m128i)codes);
#elif defined(__AVX2__)
  int64_t bytes;
  std::memcpy(&bytes, &codes, sizeof bytes);
  return (U16)_mm_cvtepu8_epi16(_mm_cvtsi64_si128(bytes));
#else
  return __builtin_convertvector(codes, U16);
#endif
}
// Integers below 2^31 as floats.
KVG_INLINE F IntsAsF(U codes) {
#if defined(__AVX512F__)
  return (F)_mm512_maskz_cvtepi32_ps(kAllLanes, (__m512i)codes);
#elif defined(__AVX2__)
  return (F)_mm256_cvtepi32_ps((__m256i)codes);
#else
  return __builtin_convertvector((I)codes, F);
#endif
}
KVG_INLINE F CodesAsF(U8 codes) { return IntsAsF(WidenCodes(codes)); }
KVG_INLINE F LoadCodes(const uint8_t* p, Whole) { return CodesAsF(LoadAs<U8>(p)); }
KVG_INLINE F LoadCodes(const uint8_t* p, Part part) {
  uint8_t lanes[kLanes] = {};
  for (int i = 0; i < part.count; ++i) lanes[i] = p[i];
  return CodesAsF(LoadAs<U8>(lanes));
}

}  // namespace
}  // namespace kvgauge
