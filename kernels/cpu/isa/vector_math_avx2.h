// SPDX-License-Identifier: Apache-2.0
// Vectors of eight floats, AVX2 + FMA + F16C. Only for files compiled for that.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace kvgauge {
namespace {  // for the reason given in panel.h

struct Avx2Vector {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kRegisters = 16;
  static constexpr int kTileRows = 6, kTileVectors = 2;  // of attention's product tiles
  static constexpr bool kHasBf16Dot = false;
  static constexpr bool kHasWordTable = false;
  static constexpr bool kHalvesInRegisters = false;
  static constexpr bool kLoadsE4M3 = false;
  static constexpr bool kHasWordDot = true;

  static F Set(float x) { return _mm256_set1_ps(x); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static F LoadF16(const uint16_t* p) { return _mm256_cvtph_ps(LoadHalf(p)); }
  static F LoadBf16(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(LoadHalf(p)), 16));
  }
  static void StoreF16(uint16_t* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  // Nearest even, denormals too; NaN becomes quiet.
  static void StoreBf16(uint16_t* p, F v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i nearest =
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    const __m256i kept =
        _mm256_srli_epi32(_mm256_blendv_epi8(nearest, quiet, _mm256_castps_si256(nan)), 16);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(p),
        _mm_packus_epi32(_mm256_castsi256_si128(kept), _mm256_extracti128_si256(kept, 1)));
  }
  // bf16 pairs, one per 32-bit lane: the first (low half) and the second (high half) of each.
  static F LoadFirst(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(LoadBits(p), 16));
  }
  static F LoadSecond(const uint16_t* p) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(LoadBits(p), _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }

  // Lane 0 of a, b, c and d, then lane 1 and so on.
  static void StoreSideBySide(float* p, F a, F b, F c, F d) {
    const __m256d ab = _mm256_castps_pd(_mm256_unpacklo_ps(a, b));
    const __m256d cd = _mm256_castps_pd(_mm256_unpacklo_ps(c, d));
    const __m256d ab_high = _mm256_castps_pd(_mm256_unpackhi_ps(a, b));
    const __m256d cd_high = _mm256_castps_pd(_mm256_unpackhi_ps(c, d));
    // Lanes i and i + 4.
    const F x[4] = {_mm256_castpd_ps(_mm256_unpacklo_pd(ab, cd)),
                    _mm256_castpd_ps(_mm256_unpackhi_pd(ab, cd)),
                    _mm256_castpd_ps(_mm256_unpacklo_pd(ab_high, cd_high)),
                    _mm256_castpd_ps(_mm256_unpackhi_pd(ab_high, cd_high))};
    Store(p, _mm256_permute2f128_ps(x[0], x[1], 0x20));
    Store(p + kLanes, _mm256_permute2f128_ps(x[2], x[3], 0x20));
    Store(p + 2 * kLanes, _mm256_permute2f128_ps(x[0], x[1], 0x31));
    Store(p + 3 * kLanes, _mm256_permute2f128_ps(x[2], x[3], 0x31));
  }

  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  // Both return b when either is NaN.
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static F Min(F a, F b) { return _mm256_min_ps(a, b); }
  static F MaxSize(F a, F b) { return Max(a, Abs(b)); }  // of a and b, without signs; a >= 0
  static F Abs(F a) { return _mm256_andnot_ps(Set(-0.0f), a); }
  static F CopySign(F size, F sign) { return _mm256_or_ps(size, _mm256_and_ps(Set(-0.0f), sign)); }
  static F Round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F ScaleByPowerOf2(F a, F n) {
    const __m256i shift = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), shift));
  }
  static F ZeroWhereLess(F x, F bound, F a) {
    return _mm256_andnot_ps(_mm256_cmp_ps(x, bound, _CMP_LT_OQ), a);
  }
  static F ChooseWhereLess(F x, F bound, F yes, F no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(x, bound, _CMP_LT_OQ));
  }
  // a in lanes with begin <= first + lane < end, otherwise `outside`.
  static F Inside(int first, int begin, int end, F a, F outside) {
    const __m256i lane =
        _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i inside = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane),
                                               _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
    return _mm256_blendv_ps(outside, a, _mm256_castsi256_ps(inside));
  }
  // a in lanes whose bit is set, otherwise `outside`.
  static F WhereBits(uint32_t bits, F a, F outside) {
    const __m256i place = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), place);
    return _mm256_blendv_ps(outside, a, _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, place)));
  }
  // Tables of 16 floats, looked up by the low bits of a lane; tables of fewer numbers are repeated.
  using U [[gnu::vector_size(32)]] = uint32_t;
  struct Table {
    F low, high;
  };
  static U LoadU(const void* p) {
    return (U)_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static void StoreU(void* p, U x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)x);
  }
  static F IntsAsF(U x) { return _mm256_cvtepi32_ps((__m256i)x); }
  // Codes of 8 bits with so many of mantissa as halves: those in the even bytes of `words`, or in
  // the odd ones. A half is 2^-8 times the number of e4m3.
  template <int kMantissa>
  static U HalvesOfFloat8(U words, int odd) {
    __m256i codes = (__m256i)words;
    if (odd == 0) codes = _mm256_slli_epi16(codes, 8);
    if constexpr (kMantissa == 2) {
      return odd == 0 ? (U)codes : (U)_mm256_and_si256(codes, _mm256_set1_epi16(-256));
    }
    // The sign is copied into the exponent's top bit, which e4m3 does not have.
    const __m256i kept = _mm256_set1_epi16(static_cast<int16_t>(0xbf80u));
    return (U)_mm256_and_si256(_mm256_srai_epi16(codes, 1), kept);
  }
  // Two floats, again and again.
  static F SetPair(const float* p) {
    double pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm256_castpd_ps(_mm256_set1_pd(pair));
  }
  // Lanes 2 i and 2 i + 1 of a, then of b.
  static F SumNeighbours(F a, F b) {
    const __m256d sums = _mm256_castps_pd(_mm256_hadd_ps(a, b));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(sums, 0xd8));
  }
  static Table LoadTable(const float* p) { return {Load(p), Load(p + kLanes)}; }
  template <int kBits>
  static F Lookup(const Table& table, U index) {
    const F low = _mm256_permutevar8x32_ps(table.low, (__m256i)index);
    if constexpr (kBits < 4) return low;
    const F high = _mm256_permutevar8x32_ps(table.high, (__m256i)index);
    return _mm256_blendv_ps(low, high, (F)(index << 28));
  }
  // Takes, in each half of a lane, bits 0 and 1 of `low` and the rest of `high`.
  static U JoinLow2(U low, U high) { return (low & 0x30003u) | (high & ~0x30003u); }
  // Bits of a where those of `mask` are set, otherwise of b.
  static U Select(uint32_t mask, U a, U b) { return (a & mask) | (b & ~mask); }
  // Bit i < 4 of each half of a lane goes to bit 2 i + 2 of it; the others are lost.
  static U SpreadBits(U x) {
    const U four = x & 0x000f000fu;
    // A byte for three bits; the upper byte of a half is 0 and stays so.
    const U three = {0x14100400, 0x54504440, 0x14100400, 0x54504440,
                     0x14100400, 0x54504440, 0x14100400, 0x54504440};
    const U low = (U)_mm256_shuffle_epi8((__m256i)three, (__m256i)four);
    return low | (four & 0x00080008u) << 5;
  }
  static U ShiftRight(U x, U bits) { return (U)_mm256_srlv_epi32((__m256i)x, (__m256i)bits); }
  // The upper byte of each half of a lane, alone.
  static U HighBytes(U x) { return (U)_mm256_srli_epi16((__m256i)x, 8); }
  static U AndOr(U a, uint32_t mask, U c) { return (a & mask) | c; }
  // a, where that byte of each lane is 0, with b's there.
  template <int kByte>
  static U PutByte(U a, U b) {
    return AndOr(b, 0xffu << 8 * kByte, a);
  }
  // Pairs of 16-bit integers, one per 32-bit lane.
  static U SetWords(const int16_t* p) {
    uint32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return (U)_mm256_set1_epi32(static_cast<int>(pair));
  }
  // sum + a.first * b.first + a.second * b.second in each lane.
  static U DotWords(U sum, U a, U b) { return sum + (U)_mm256_madd_epi16((__m256i)a, (__m256i)b); }
  // Integers of 32 bits, shifted right, as floats.
  static F ShiftedInts(U x, int shift) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32((__m256i)x, shift));
  }
  // Stores the low 16 bits of each lane.
  static void StoreWords(int16_t* p, U x) {
    const __m256i words = _mm256_srai_epi32((__m256i)(x << 16), 16);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(p),
        _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }
  // The low 16 bits of each lane of a, then of b.
  static U PackWords(U a, U b) {
    const auto words = [](U x) { return _mm256_srai_epi32((__m256i)(x << 16), 16); };
    // Packed by halves: quarters come as 0, 2, 1, 3.
    return (U)_mm256_permute4x64_epi64(_mm256_packs_epi32(words(a), words(b)), 0xd8);
  }
  static void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
  static float SumLanes(F a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
  }
  static float MaxLanes(F a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
  }

  // Two and four at a time.
  static void SumLanesOf2(F a, F b, float* out) { out[0] = SumLanes(a), out[1] = SumLanes(b); }
  static void MaxLanesOf2(F a, F b, float* out) { out[0] = MaxLanes(a), out[1] = MaxLanes(b); }
  static void SumLanesOf4(F a, F b, F c, F d, float* out) {
    out[0] = SumLanes(a), out[1] = SumLanes(b), out[2] = SumLanes(c), out[3] = SumLanes(d);
  }
  static void MaxLanesOf4(F a, F b, F c, F d, float* out) {
    out[0] = MaxLanes(a), out[1] = MaxLanes(b), out[2] = MaxLanes(c), out[3] = MaxLanes(d);
  }

  using Words = __m256i;
  // Four words of each of kLanes rows, at an offset in bytes: x[w] has word w of all rows.
  static void TurnWords(const char* const* rows, int64_t offset, Words (&x)[4]) {
    const auto load = [&](int row) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[row] + offset));
    };
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      x[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(load(r)), load(r + 4), 1);
    }
    const __m256i ab = _mm256_unpacklo_epi32(x[0], x[1]), cd = _mm256_unpacklo_epi32(x[2], x[3]);
    const __m256i ab_high = _mm256_unpackhi_epi32(x[0], x[1]);
    const __m256i cd_high = _mm256_unpackhi_epi32(x[2], x[3]);
    x[0] = _mm256_unpacklo_epi64(ab, cd);
    x[1] = _mm256_unpackhi_epi64(ab, cd);
    x[2] = _mm256_unpacklo_epi64(ab_high, cd_high);
    x[3] = _mm256_unpackhi_epi64(ab_high, cd_high);
  }
  static void StoreWords(void* p, Words x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
  // The low and the high halves of words.
  static void StoreHalves(uint16_t* low, uint16_t* high, Words x) {
    const auto store = [](uint16_t* p, __m256i halves) {
      const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(halves, halves), 0x08);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
    };
    store(low, _mm256_and_si256(x, _mm256_set1_epi32(0xffff)));
    store(high, _mm256_srli_epi32(x, 16));
  }

 private:
  static __m128i LoadHalf(const uint16_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static __m256i LoadBits(const uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
};

}  // namespace
}  // namespace kvgauge
