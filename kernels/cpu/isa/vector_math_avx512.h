// SPDX-License-Identifier: Apache-2.0
// Vectors of sixteen floats, AVX-512 F BW VL DQ, and the same with the bf16 dot product. Only for
// files compiled for that.
#pragma once

// gcc 12 warns about the intrinsics' own "undefined" operands (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif

#include <cstdint>

namespace kvgauge {
namespace {  // for the reason given in panel.h

// While it lives, arithmetic takes denormals for 0 and makes none, as products of bf16 do.
class DenormalsAreZero {
 public:
  DenormalsAreZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlush); }
  ~DenormalsAreZero() { _mm_setcsr(before_); }
  DenormalsAreZero(const DenormalsAreZero&) = delete;
  DenormalsAreZero& operator=(const DenormalsAreZero&) = delete;

 private:
  static constexpr unsigned kFlush = 0x8040;  // results and operands
  const unsigned before_;
};

struct Avx512Vector {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kRegisters = 32;
  static constexpr int kTileRows = 6, kTileVectors = 4;  // of attention's product tiles
  static constexpr bool kHasBf16Dot = false;
  static constexpr bool kHasWordDot = true;
  static constexpr bool kHasWordTable = true;
  static constexpr bool kHalvesInRegisters = false;
  static constexpr bool kLoadsE4M3 = true;

  static F Set(float x) { return _mm512_set1_ps(x); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static F LoadF16(const uint16_t* p) { return _mm512_cvtph_ps(LoadHalf(p)); }
  static F LoadBf16(const uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(LoadHalf(p)), 16));
  }
  static void StoreF16(uint16_t* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  // Nearest even, denormals too (vcvtneps2bf16 flushes them); NaN becomes quiet.
  static void StoreBf16(uint16_t* p, F v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i nearest =
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i kept = _mm512_mask_or_epi32(nearest, nan, bits, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
  }
  using Words = __m512i;
  // bf16 pairs, one per 32-bit lane: the first (low half) and the second (high half) of each.
  static F LoadFirst(const uint16_t* p) { return FirstOfWords(LoadWords(p)); }
  static F LoadSecond(const uint16_t* p) { return SecondOfWords(LoadWords(p)); }

  // Lane 0 of a, lane 0 of b, lane 1 of a and so on.
  static void StoreInTurn(float* p, F a, F b) {
    const __m512i begin = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i end = _mm512_add_epi32(begin, _mm512_set1_epi32(8));
    Store(p, _mm512_permutex2var_ps(a, begin, b));
    Store(p + kLanes, _mm512_permutex2var_ps(a, end, b));
  }

  // Lane 0 of a, b, c and d, then lane 1 and so on.
  static void StoreSideBySide(float* p, F a, F b, F c, F d) {
    const __m512d ab = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
    const __m512d cd = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
    const __m512d ab_high = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
    const __m512d cd_high = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
    // Lanes i, i + 4, i + 8 and i + 12.
    const F x[4] = {_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)),
                    _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)),
                    _mm512_castpd_ps(_mm512_unpacklo_pd(ab_high, cd_high)),
                    _mm512_castpd_ps(_mm512_unpackhi_pd(ab_high, cd_high))};
    const F low = _mm512_shuffle_f32x4(x[0], x[1], 0x44),
            low2 = _mm512_shuffle_f32x4(x[2], x[3], 0x44);
    const F high = _mm512_shuffle_f32x4(x[0], x[1], 0xee),
            high2 = _mm512_shuffle_f32x4(x[2], x[3], 0xee);
    Store(p, _mm512_shuffle_f32x4(low, low2, 0x88));
    Store(p + kLanes, _mm512_shuffle_f32x4(low, low2, 0xdd));
    Store(p + 2 * kLanes, _mm512_shuffle_f32x4(high, high2, 0x88));
    Store(p + 3 * kLanes, _mm512_shuffle_f32x4(high, high2, 0xdd));
  }

  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  // Both return b when either is NaN.
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static F MaxSize(F a, F b) { return _mm512_range_ps(a, b, 0xb); }  // of a and b, without signs
  static F Abs(F a) { return _mm512_andnot_ps(Set(-0.0f), a); }
  static F CopySign(F size, F sign) { return _mm512_or_ps(size, _mm512_and_ps(Set(-0.0f), sign)); }
  static F Round(F a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static F ScaleByPowerOf2(F a, F n) { return _mm512_scalef_ps(a, n); }
  static F ZeroWhereLess(F x, F bound, F a) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ), a);
  }
  static F ChooseWhereLess(F x, F bound, F yes, F no) {
    return _mm512_mask_mov_ps(no, _mm512_cmp_ps_mask(x, bound, _CMP_LT_OQ), yes);
  }
  // a in lanes with begin <= first + lane < end, otherwise `outside`.
  static F Inside(int first, int begin, int end, F a, F outside) {
    const __m512i lane =
        _mm512_add_epi32(_mm512_set1_epi32(first),
                         _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const __mmask16 inside = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(begin)) &
                             _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(end));
    return _mm512_mask_mov_ps(outside, inside, a);
  }
  // a in lanes whose bit is set, otherwise `outside`.
  static F WhereBits(uint32_t bits, F a, F outside) {
    return _mm512_mask_mov_ps(outside, static_cast<__mmask16>(bits), a);
  }
  // Tables of 16 floats, looked up by the low bits of a lane; tables of fewer numbers are repeated.
  using U [[gnu::vector_size(64)]] = uint32_t;
  using Table = F;
  static U LoadU(const void* p) { return (U)_mm512_loadu_si512(p); }
  static void StoreU(void* p, U x) { _mm512_storeu_si512(p, (__m512i)x); }
  static F IntsAsF(U x) { return _mm512_cvtepi32_ps((__m512i)x); }
  // Codes of 8 bits with so many of mantissa as halves: those in the even bytes of `words`, or in
  // the odd ones. A half is 2^-8 times the number of e4m3.
  template <int kMantissa>
  static U HalvesOfFloat8(U words, int odd) {
    const __m512i codes = (__m512i)words;
    if constexpr (kMantissa == 2) {
      return odd == 0 ? (U)_mm512_mullo_epi16(codes, _mm512_set1_epi16(256))
                      : (U)_mm512_and_si512(codes, _mm512_set1_epi16(-256));
    }
    // Times 128, with signs: both take either port, and shifts only one. The sign is then in the
    // exponent's top bit, too, which e4m3 does not have.
    const __m512i shifted =
        _mm512_maddubs_epi16(_mm512_set1_epi16(odd == 0 ? 0x80 : int16_t(0x8000)), codes);
    return (U)_mm512_and_si512(shifted, _mm512_set1_epi16(static_cast<int16_t>(0xbf80u)));
  }
  // 2^-8 times numbers of e4m3, none of them negative.
  static F LoadE4M3(const uint8_t* p) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 7));
  }
  // Two floats, again and again.
  static F SetPair(const float* p) {
    double pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm512_castpd_ps(_mm512_set1_pd(pair));
  }
  // Lanes 2 i and 2 i + 1 of a, then of b.
  static F SumNeighbours(F a, F b) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    return Add(_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b));
  }
  static Table LoadTable(const float* p) { return Load(p); }
  template <int kBits>
  static F Lookup(const Table& table, U index) {
    return _mm512_permutexvar_ps((__m512i)index, table);
  }
  // Words of the upper halves of a table's floats, again and again.
  static U UpperHalves(const Table& table) {
    const U upper = (U)table >> 16;
    return PackWords(upper, upper);
  }
  // The float whose upper half the upper half of a lane looks up.
  static F LookupUpper(U halves, U index) {
    return (F)_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, (__m512i)index, (__m512i)halves);
  }
  // Takes, in each half of a lane, bits 0 and 1 of `low` and the rest of `high`.
  static U JoinLow2(U low, U high) {
    return (U)_mm512_ternarylogic_epi32(_mm512_set1_epi32(0x30003), (__m512i)low, (__m512i)high,
                                        0xca);
  }
  // Bits of a where those of `mask` are set, otherwise of b.
  static U Select(uint32_t mask, U a, U b) {
    return (U)_mm512_ternarylogic_epi32(_mm512_set1_epi32(static_cast<int>(mask)), (__m512i)a,
                                        (__m512i)b, 0xca);
  }
  // Bit i < 4 of each half of a lane goes to bit 2 i + 2 of it; the others are lost.
  static U SpreadBits(U x) {
    // The index is of 5 bits, the last of which changes nothing.
    const U half = {0x00040000, 0x00140010, 0x00440040, 0x00540050, 0x01040100, 0x01140110,
                    0x01440140, 0x01540150, 0x00040000, 0x00140010, 0x00440040, 0x00540050,
                    0x01040100, 0x01140110, 0x01440140, 0x01540150};
    return (U)_mm512_permutexvar_epi16((__m512i)x, (__m512i)half);
  }
  static U ShiftRight(U x, U bits) { return (U)_mm512_srlv_epi32((__m512i)x, (__m512i)bits); }
  // The upper byte of each half of a lane, alone.
  static U HighBytes(U x) { return (U)_mm512_srli_epi16((__m512i)x, 8); }
  // a, where that byte of each lane is 0, with b's there.
  template <int kByte>
  static U PutByte(U a, U b) {
    return (U)_mm512_mask_mov_epi8((__m512i)a, 0x1111111111111111u << kByte, (__m512i)b);
  }
  // (a & mask) | c.
  static U AndOr(U a, uint32_t mask, U c) {
    return (U)_mm512_ternarylogic_epi32((__m512i)a, _mm512_set1_epi32(static_cast<int>(mask)),
                                        (__m512i)c, 0xea);
  }
  // Pairs of 16-bit integers, one per 32-bit lane.
  static U SetWords(const int16_t* p) {
    uint32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return (U)_mm512_set1_epi32(static_cast<int>(pair));
  }
  // sum + a.first * b.first + a.second * b.second in each lane.
  static U DotWords(U sum, U a, U b) {
#ifdef __AVX512VNNI__
    return (U)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#else
    return sum + (U)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#endif
  }
  // Integers of 32 bits, shifted right, as floats.
  static F ShiftedInts(U x, int shift) {
    return _mm512_cvtepi32_ps(_mm512_srai_epi32((__m512i)x, static_cast<unsigned>(shift)));
  }
  // Stores the low 16 bits of each lane.
  static void StoreWords(int16_t* p, U x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16((__m512i)x));
  }
  // The low 16 bits of each lane of a, then of b.
  static U PackWords(U a, U b) {
    const __m512i index = _mm512_setr_epi32(0x20000, 0x60004, 0xa0008, 0xe000c, 0x120010, 0x160014,
                                            0x1a0018, 0x1e001c, 0x220020, 0x260024, 0x2a0028,
                                            0x2e002c, 0x320030, 0x360034, 0x3a0038, 0x3e003c);
    return (U)_mm512_permutex2var_epi16((__m512i)a, index, (__m512i)b);
  }
  static void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
  static float SumLanes(F a) {
    __m256 y = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
  }
  static float MaxLanes(F a) {
    __m256 y = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
  }

  // Two and four at a time.
  static void SumLanesOf2(F a, F b, float* out) {
    LanesOf2(a, b, out, [](__m256 x, __m256 y) { return _mm256_add_ps(x, y); });
  }
  static void MaxLanesOf2(F a, F b, float* out) {
    LanesOf2(a, b, out, [](__m256 x, __m256 y) { return _mm256_max_ps(x, y); });
  }
  static void SumLanesOf4(F a, F b, F c, F d, float* out) {
    LanesOf4(a, b, c, d, out, [](F x, F y) { return Add(x, y); });
  }
  static void MaxLanesOf4(F a, F b, F c, F d, float* out) {
    LanesOf4(a, b, c, d, out, [](F x, F y) { return Max(x, y); });
  }

  // Four words of each of kLanes rows, at an offset in bytes: x[w] has word w of all rows.
  static void TurnWords(const char* const* rows, int64_t offset, Words (&x)[4]) {
    const auto load = [&](int row) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[row] + offset));
    };
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(load(r)), load(r + 4), 1);
      const __m256i high =
          _mm256_inserti128_si256(_mm256_castsi128_si256(load(r + 8)), load(r + 12), 1);
      x[r] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    const __m512i ab = _mm512_unpacklo_epi32(x[0], x[1]), cd = _mm512_unpacklo_epi32(x[2], x[3]);
    const __m512i ab_high = _mm512_unpackhi_epi32(x[0], x[1]);
    const __m512i cd_high = _mm512_unpackhi_epi32(x[2], x[3]);
    x[0] = _mm512_unpacklo_epi64(ab, cd);
    x[1] = _mm512_unpackhi_epi64(ab, cd);
    x[2] = _mm512_unpacklo_epi64(ab_high, cd_high);
    x[3] = _mm512_unpackhi_epi64(ab_high, cd_high);
  }
  static Words LoadWords(const void* p) { return _mm512_loadu_si512(p); }
  static void StoreWords(void* p, Words x) { _mm512_storeu_si512(p, x); }
  // The numbers of bf16 in words' low halves, and in the high ones.
  static F FirstOfWords(Words x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
  static F SecondOfWords(Words x) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  // The low and the high halves of words.
  static void StoreHalves(uint16_t* low, uint16_t* high, Words x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), _mm512_cvtepi32_epi16(x));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(high),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(x, 16)));
  }

 protected:
  static __m256i LoadHalf(const uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }

 private:
  template <class Join>
  static void LanesOf2(F a, F b, float* out, Join join) {
    const __m256 a8 = join(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m256 b8 = join(_mm512_castps512_ps256(b), _mm512_extractf32x8_ps(b, 1));
    __m256 x = join(_mm256_permute2f128_ps(a8, b8, 0x20), _mm256_permute2f128_ps(a8, b8, 0x31));
    x = join(x, _mm256_permute_ps(x, 0x4e));
    x = join(x, _mm256_permute_ps(x, 0xb1));
    out[0] = _mm256_cvtss_f32(x);
    out[1] = _mm_cvtss_f32(_mm256_extractf128_ps(x, 1));
  }
  template <class Join>
  static void LanesOf4(F a, F b, F c, F d, float* out, Join join) {
    const F ab = join(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    const F cd = join(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    F x = join(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    x = join(x, _mm512_permute_ps(x, 0x4e));
    x = join(x, _mm512_permute_ps(x, 0xb1));
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, x)));
  }
};

#ifdef __AVX512BF16__
struct Avx512Bf16Vector : Avx512Vector {
  static constexpr bool kHasBf16Dot = true;
  static constexpr bool kHalvesInRegisters = true;
  using DotScope = DenormalsAreZero;  // in which Fma treats denormals as DotPairs

  // What HalvesOfFloat8 makes of the codes in 32 bytes, as floats.
  template <int kMantissa>
  static F FloatsOfFloat8(const char* block, int odd) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block));
    if constexpr (kMantissa == 2) {
      return _mm512_cvtph_ps(odd == 0 ? _mm256_slli_epi16(codes, 8)
                                      : _mm256_and_si256(codes, _mm256_set1_epi16(-256)));
    }
    const __m256i shifted =
        _mm256_maddubs_epi16(_mm256_set1_epi16(odd == 0 ? 0x80 : int16_t(0x8000)), codes);
    const __m256i kept = _mm256_set1_epi16(static_cast<int16_t>(0xbf80u));
    return _mm512_cvtph_ps(_mm256_and_si256(shifted, kept));
  }

  // Whether arithmetic has not been told to take denormals for 0.
  static bool TakesDenormals() { return (_mm_getcsr() & 0x40) == 0; }
  // e4m3 in the even bytes of `words`, or in the odd ones: sign and size where those of the upper
  // half of a float are, the size four bits below its place.
  static U RaisedHalves(U words, int odd) {
    const __m512i codes = (__m512i)words, upper = odd == 0 ? _mm512_slli_epi16(codes, 8) : codes;
    return (U)_mm512_and_si512(_mm512_srai_epi16(upper, 4),
                               _mm512_set1_epi16(static_cast<int16_t>(0x87f0u)));
  }

  using Pairs = __m512i;  // one pair of bf16 per 32-bit lane
  static Pairs LoadPairs(const uint16_t* p) { return _mm512_loadu_si512(p); }
  // Pairs of what both rows hold.
  static Pairs JoinPairs(const uint16_t* first, const uint16_t* second) {
    return _mm512_or_si512(_mm512_cvtepu16_epi32(LoadHalf(first)),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(LoadHalf(second)), 16));
  }
  // Pairs of what two rows hold in the low halves of their words, and in the high ones.
  static Pairs JoinLowHalves(Pairs first, Pairs second) {
    return _mm512_mask_mov_epi16(first, 0xaaaaaaaau, _mm512_slli_epi32(second, 16));
  }
  static Pairs JoinHighHalves(Pairs first, Pairs second) {
    return _mm512_mask_mov_epi16(_mm512_srli_epi32(first, 16), 0xaaaaaaaau, second);
  }
  static Pairs SetPairs(const uint16_t* p) {
    uint32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(static_cast<int>(pair));
  }
  // sum + a.first * b.first + a.second * b.second in each lane. Denormals count as 0.
  static F DotPairs(F sum, Pairs a, Pairs b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
  // Keeps the compiler from dropping a load whose only purpose is to have happened.
  static void Touch(Pairs x) { asm volatile("" : : "v"(x)); }
  // Rounds as StoreBf16 does where v is 0, normal or NaN; denormals become 0.
  static void StoreBf16Normal(uint16_t* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(v));
  }
};
#endif

}  // namespace
}  // namespace kvgauge
