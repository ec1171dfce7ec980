// SPDX-License-Identifier: Apache-2.0
// Vectors of four floats in the compiler's own vector extension: runs on any processor. Products
// and sums round separately: a fused multiply-add without hardware is a library call.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/dtype.h"

namespace kvgauge {
namespace {  // for the reason given in panel.h

struct PortableVector {
  using F [[gnu::vector_size(16)]] = float;
  using I [[gnu::vector_size(16)]] = int32_t;
  using U [[gnu::vector_size(16)]] = uint32_t;
  static constexpr int kLanes = 4;
  static constexpr int kRegisters = 16;
  static constexpr int kTileRows = 2, kTileVectors = 4;  // of attention's product tiles
  static constexpr bool kHasBf16Dot = false;
  static constexpr bool kHasWordTable = false;
  static constexpr bool kHalvesInRegisters = false;
  static constexpr bool kLoadsE4M3 = false;
  static constexpr bool kHasWordDot = false;

  static F Set(float x) { return F{x, x, x, x}; }
  static F Load(const float* p) {
    F v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void Store(float* p, F v) { std::memcpy(p, &v, sizeof v); }
  static F LoadF16(const uint16_t* p) {
    const U half = LoadHalf(p);
    // The multiplication moves the exponent bias and normalises subnormals, exactly.
    const U magnitude = (half & 0x7fffu) << 13;
    const U finite = (U)((F)magnitude * Set(0x1p112f));
    const U special = (U)(magnitude >= 0x0f800000u) & 0x7f800000u;
    return (F)(finite | special | (half & 0x8000u) << 16);
  }
  static F LoadBf16(const uint16_t* p) { return (F)(LoadHalf(p) << 16); }
  static void StoreF16(uint16_t* p, F v) {
    for (int i = 0; i < kLanes; ++i) p[i] = F32ToF16(v[i]);
  }
  static void StoreBf16(uint16_t* p, F v) {
    for (int i = 0; i < kLanes; ++i) p[i] = F32ToBf16(v[i]);
  }
  // bf16 pairs, one per 32-bit lane: the first (low half) and the second (high half) of each.
  static F LoadFirst(const uint16_t* p) { return (F)(LoadBits(p) << 16); }
  static F LoadSecond(const uint16_t* p) { return (F)(LoadBits(p) & 0xffff0000u); }

  // Lane 0 of a, b, c and d, then lane 1 and so on.
  static void StoreSideBySide(float* p, F a, F b, F c, F d) {
    for (int i = 0; i < kLanes; ++i) Store(p + i * kLanes, F{a[i], b[i], c[i], d[i]});
  }

  static F Add(F a, F b) { return a + b; }
  static F Sub(F a, F b) { return a - b; }
  static F Mul(F a, F b) { return a * b; }
  static F Div(F a, F b) { return a / b; }
  static F Fma(F a, F b, F c) { return a * b + c; }
  // Both return b when either is NaN.
  static F Max(F a, F b) { return a > b ? a : b; }
  static F Min(F a, F b) { return a < b ? a : b; }
  static F Abs(F a) { return (F)((U)a & 0x7fffffffu); }
  static F CopySign(F size, F sign) { return (F)((U)size | ((U)sign & 0x80000000u)); }
  // Adding 1.5 * 2^23 leaves the rounded integer in the low mantissa bits.
  static F Round(F a) { return (a + kMagic) - kMagic; }
  static F ScaleByPowerOf2(F a, F n) { return (F)((U)a + ((U)(n + kMagic) << 23)); }
  static F ZeroWhereLess(F x, F bound, F a) { return (F)(~(U)(x < bound) & (U)a); }
  static F ChooseWhereLess(F x, F bound, F yes, F no) { return x < bound ? yes : no; }
  // a in lanes with begin <= first + lane < end, otherwise `outside`.
  static F Inside(int first, int begin, int end, F a, F outside) {
    const I lane = I{first, first + 1, first + 2, first + 3};
    return ((lane >= begin) & (lane < end)) ? a : outside;
  }
  // a in lanes whose bit is set, otherwise `outside`.
  static F WhereBits(uint32_t bits, F a, F outside) {
    const U place = {1, 2, 4, 8};
    return (place & bits) == place ? a : outside;
  }
  // Tables of 16 floats, looked up by the low bits of a lane; tables of fewer numbers are repeated.
  using Table = const float*;
  static U LoadU(const void* p) {
    U v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void StoreU(void* p, U x) { std::memcpy(p, &x, sizeof x); }
  static F IntsAsF(U x) { return __builtin_convertvector((I)x, F); }
  // Codes of 8 bits with so many of mantissa as halves: those in the even bytes of `words`, or in
  // the odd ones. A half is 2^-8 times the number of e4m3.
  template <int kMantissa>
  static U HalvesOfFloat8(U words, int odd) {
    const U codes = odd == 0 ? words : words >> 8;
    const U magnitudes = (codes & 0x7f007fu) << (10 - kMantissa);
    return magnitudes | (codes & 0x800080u) << 8;
  }
  // Two floats, again and again.
  static F SetPair(const float* p) { return F{p[0], p[1], p[0], p[1]}; }
  // Lanes 2 i and 2 i + 1 of a, then of b.
  static F SumNeighbours(F a, F b) { return F{a[0] + a[1], a[2] + a[3], b[0] + b[1], b[2] + b[3]}; }
  static Table LoadTable(const float* p) { return p; }
  template <int kBits>
  static F Lookup(const Table& table, U index) {
    return F{table[index[0] & 15u], table[index[1] & 15u], table[index[2] & 15u],
             table[index[3] & 15u]};
  }
  // Takes, in each half of a lane, bits 0 and 1 of `low` and the rest of `high`.
  static U JoinLow2(U low, U high) { return (low & 0x30003u) | (high & ~0x30003u); }
  static U AndOr(U a, uint32_t mask, U c) { return (a & mask) | c; }
  // a, where that byte of each lane is 0, with b's there.
  template <int kByte>
  static U PutByte(U a, U b) {
    return AndOr(b, 0xffu << 8 * kByte, a);
  }
  static void Prefetch(const void* p) { __builtin_prefetch(p); }
  static float SumLanes(F a) { return (a[0] + a[2]) + (a[1] + a[3]); }
  static float MaxLanes(F a) {
    const float x = a[0] > a[1] ? a[0] : a[1], y = a[2] > a[3] ? a[2] : a[3];
    return x > y ? x : y;
  }

  using Words = U;
  // Four words of each of kLanes rows, at an offset in bytes: x[w] has word w of all rows.
  static void TurnWords(const char* const* rows, int64_t offset, Words (&x)[4]) {
    U a, b, c, d;
    std::memcpy(&a, rows[0] + offset, sizeof a);
    std::memcpy(&b, rows[1] + offset, sizeof b);
    std::memcpy(&c, rows[2] + offset, sizeof c);
    std::memcpy(&d, rows[3] + offset, sizeof d);
    const U ac = __builtin_shufflevector(a, c, 0, 4, 1, 5);
    const U bd = __builtin_shufflevector(b, d, 0, 4, 1, 5);
    const U ac_high = __builtin_shufflevector(a, c, 2, 6, 3, 7);
    const U bd_high = __builtin_shufflevector(b, d, 2, 6, 3, 7);
    x[0] = __builtin_shufflevector(ac, bd, 0, 4, 1, 5);
    x[1] = __builtin_shufflevector(ac, bd, 2, 6, 3, 7);
    x[2] = __builtin_shufflevector(ac_high, bd_high, 0, 4, 1, 5);
    x[3] = __builtin_shufflevector(ac_high, bd_high, 2, 6, 3, 7);
  }
  static void StoreWords(void* p, Words x) { std::memcpy(p, &x, sizeof x); }
  // The low and the high halves of words.
  static void StoreHalves(uint16_t* low, uint16_t* high, Words x) {
    for (int i = 0; i < kLanes; ++i) {
      low[i] = static_cast<uint16_t>(x[i]);
      high[i] = static_cast<uint16_t>(x[i] >> 16);
    }
  }

 private:
  static constexpr float kMagic = 12582912.0f;
  static U LoadHalf(const uint16_t* p) { return U{p[0], p[1], p[2], p[3]}; }
  static U LoadBits(const uint16_t* p) {
    U v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
};

}  // namespace
}  // namespace kvgauge
