// SPDX-License-Identifier: Apache-2.0
// One vector of the instruction set that the including file is compiled for, and the mathematics
// that row kernels share.
//
// Everything has internal linkage: an inline function that the linker merged between a plain and a
// vector file could end up as the vector one on a machine without it. For the same reason files
// that include this one call nothing that is inline from elsewhere.
//
// Tails go through the same vector code as whole vectors, so the bits of an element do not depend
// on where in a row it stands.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/dtype.h"
#include "cpu/isa/inline.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace kvgauge {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

// clang-format off
typedef float F __attribute__((vector_size(4 * kLanes)));
typedef int32_t I __attribute__((vector_size(4 * kLanes)));
typedef uint32_t U __attribute__((vector_size(4 * kLanes)));
typedef uint64_t U64 __attribute__((vector_size(4 * kLanes)));
typedef uint16_t U16 __attribute__((vector_size(2 * kLanes)));
typedef uint8_t U8 __attribute__((vector_size(kLanes)));
typedef double D __attribute__((vector_size(4 * kLanes)));
typedef int64_t L __attribute__((vector_size(4 * kLanes)));
typedef float HalfF __attribute__((vector_size(2 * kLanes)));
// clang-format on

KVG_INLINE F Splat(float v) { return v - F{}; }  // v - 0 is v for every v; 0 + v loses -0

template <class T>
KVG_INLINE T LoadAs(const void* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
KVG_INLINE void StoreAs(void* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

// How many elements of a vector take part.
struct Whole {
  static constexpr int count = kLanes;
};
struct Part {
  int count;
};

// body(i, Whole) for every whole vector, then body(i, Part) for what is left.
template <class Body>
KVG_INLINE void ForLanes(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Whole{});
  if (i < n) body(i, Part{static_cast<int>(n - i)});
}

// The lanes that are not loaded are 0.
KVG_INLINE F Load(const float* p, Whole) { return LoadAs<F>(p); }
KVG_INLINE void Store(float* p, F v, Whole) { StoreAs(p, v); }
#if defined(__AVX512F__)
// Zero-masking forms, here and below: gcc 12 takes the undefined input that the plain conversion
// intrinsics pass for a mistake of ours.
constexpr __mmask16 kAllLanes = 0xffff;
KVG_INLINE __mmask16 MaskOf(Part part) { return static_cast<__mmask16>((1u << part.count) - 1); }
KVG_INLINE F Load(const float* p, Part part) { return (F)_mm512_maskz_loadu_ps(MaskOf(part), p); }
KVG_INLINE void Store(float* p, F v, Part part) { _mm512_mask_storeu_ps(p, MaskOf(part), v); }
#else
KVG_INLINE F Load(const float* p, Part part) {
  float lanes[kLanes] = {};
  for (int i = 0; i < part.count; ++i) lanes[i] = p[i];
  return LoadAs<F>(lanes);
}
KVG_INLINE void Store(float* p, F v, Part part) {
  float lanes[kLanes];
  StoreAs(lanes, v);
  for (int i = 0; i < part.count; ++i) p[i] = lanes[i];
}
#endif

// v in the lanes that take part, `other` in the rest.
KVG_INLINE F KeepOr(F v, Whole, float) { return v; }
KVG_INLINE F KeepOr(F v, Part part, float other) {
  I lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  return lane < part.count ? v : Splat(other);
}

// a * b + c, fused where the instruction set can.
KVG_INLINE F Fma(F a, F b, F c) {
#if defined(__AVX512F__)
  return (F)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (F)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}
// Correctly rounded; NaN for negative numbers.
KVG_INLINE F Sqrt(F v) {
#if defined(__AVX512F__)
  return (F)_mm512_maskz_sqrt_ps(kAllLanes, (__m512)v);
#elif defined(__AVX2__)
  return (F)_mm256_sqrt_ps((__m256)v);
#else
  for (int i = 0; i < kLanes; ++i) v[i] = __builtin_sqrtf(v[i]);
  return v;
#endif
}
// When either is NaN, b is chosen for being second: Max(v, bound) drops a NaN v, Max(bound, v)
// keeps it.
#if defined(__AVX512F__)
KVG_INLINE F Max(F a, F b) { return (F)_mm512_maskz_max_ps(kAllLanes, (__m512)a, (__m512)b); }
KVG_INLINE F Min(F a, F b) { return (F)_mm512_maskz_min_ps(kAllLanes, (__m512)a, (__m512)b); }
#elif defined(__AVX2__)
KVG_INLINE F Max(F a, F b) { return (F)_mm256_max_ps((__m256)a, (__m256)b); }
KVG_INLINE F Min(F a, F b) { return (F)_mm256_min_ps((__m256)a, (__m256)b); }
#else
KVG_INLINE F Max(F a, F b) { return a > b ? a : b; }
KVG_INLINE F Min(F a, F b) { return a < b ? a : b; }
#endif
KVG_INLINE F Abs(F v) { return (F)((U)v & 0x7fffffffu); }
KVG_INLINE F WithSignOf(F magnitude, F sign) {
  return (F)(((U)magnitude & 0x7fffffffu) | ((U)sign & 0x80000000u));
}

// Lane i of the result is lane i ^ kDistance of v.
template <int kDistance>
KVG_INLINE F Exchange(F v) {
#define KVG_LANE(i) ((i) ^ kDistance)
#if defined(__AVX512F__)
  return __builtin_shufflevector(v, v, KVG_LANE(0), KVG_LANE(1), KVG_LANE(2), KVG_LANE(3),
                                 KVG_LANE(4), KVG_LANE(5), KVG_LANE(6), KVG_LANE(7), KVG_LANE(8),
                                 KVG_LANE(9), KVG_LANE(10), KVG_LANE(11), KVG_LANE(12),
                                 KVG_LANE(13), KVG_LANE(14), KVG_LANE(15));
#elif defined(__AVX2__)
  return __builtin_shufflevector(v, v, KVG_LANE(0), KVG_LANE(1), KVG_LANE(2), KVG_LANE(3),
                                 KVG_LANE(4), KVG_LANE(5), KVG_LANE(6), KVG_LANE(7));
#else
  return __builtin_shufflevector(v, v, KVG_LANE(0), KVG_LANE(1), KVG_LANE(2), KVG_LANE(3));
#endif
#undef KVG_LANE
}

// All lanes by halves: a fixed tree.
template <class Join>
KVG_INLINE float JoinLanes(F v, Join join) {
  if constexpr (kLanes > 8) v = join(v, Exchange<8 % kLanes>(v));
  if constexpr (kLanes > 4) v = join(v, Exchange<4 % kLanes>(v));
  v = join(v, Exchange<2>(v));
  v = join(v, Exchange<1>(v));
  return v[0];
}
KVG_INLINE float SumLanes(F v) {
  return JoinLanes(v, [](F a, F b) { return a + b; });
}
// No lane may be NaN.
KVG_INLINE float MaxLanes(F v) {
  return JoinLanes(v, [](F a, F b) { return Max(a, b); });
}
KVG_INLINE bool AnyLane(I mask) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps((__m256)mask) != 0;
#else
  const L wide = (L)mask;
  return (wide[0] | wide[1]) != 0;
#endif
}

// Round to nearest even, for |v| < 2^22.
constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23
KVG_INLINE F Round(F v) { return (v + kRoundMagic) - kRoundMagic; }

// e^v. Cephes' reduction and polynomial; about 1 ulp. Exactly 0 below about -104, gradual underflow
// above, inf past the largest float, NaN for NaN.
KVG_INLINE F Exp(F v) {
  v = Max(Splat(-105.0f), Min(Splat(89.0f), v));
  const F shifted = Fma(v, Splat(1.44269504088896341f), Splat(kRoundMagic));
  const F n = shifted - kRoundMagic;
  // ln 2 in two parts; the first has so few bits that n times it is exact.
  F r = Fma(n, Splat(-0.693359375f), v);
  r = Fma(n, Splat(2.12194440e-4f), r);
  F p = Splat(1.9875691500e-4f);
  p = Fma(p, r, Splat(1.3981999507e-3f));
  p = Fma(p, r, Splat(8.3334519073e-3f));
  p = Fma(p, r, Splat(4.1665795894e-2f));
  p = Fma(p, r, Splat(1.6666665459e-1f));
  p = Fma(p, r, Splat(5.0000001201e-1f));
  p = Fma(p, r * r, r) + 1.0f;
#if defined(__AVX512F__)
  return (F)_mm512_maskz_scalef_ps(kAllLanes, (__m512)p, (__m512)n);
#else
  // 2^n as two factors, each a normal number.
  const I exponent = (I)shifted - (I)Splat(kRoundMagic);
  const I low = exponent >> 1, high = exponent - low;
  return p * (F)((low + 127) << 23) * (F)((high + 127) << 23);
#endif
}

// The natural logarithm, about 2 ulp; -inf below the smallest normal number, NaN for NaN.
KVG_INLINE F Log(F v) {
  // v = 2^n m with m between the roots of 1/2 and 2, so that nothing cancels around 1.
  const I offset = (I)v - (I)Splat(0.70710678f), n = offset >> 23;
  const F m = (F)((I)v - (n << 23));
  const F exponent = (F)(n + (I)Splat(kRoundMagic)) - kRoundMagic;
  // ln m = 2 artanh s: the odd powers of s, |s| <= 0.172.
  const F s = (m - 1.0f) / (m + 1.0f), s2 = s * s;
  F p = Splat(1.0f / 11);
  p = Fma(p, s2, Splat(1.0f / 9));
  p = Fma(p, s2, Splat(1.0f / 7));
  p = Fma(p, s2, Splat(1.0f / 5));
  p = Fma(p, s2, Splat(1.0f / 3));
  const F twice = s + s;
  F sum = Fma(twice * s2, p, exponent * -2.12194440e-4f);
  sum = Fma(exponent, Splat(0.693359375f), sum + twice);
  constexpr float kLeast = 1.17549435e-38f, kMost = 3.40282347e38f, kBeyond = __builtin_inff();
  sum = v < kLeast ? Splat(-kBeyond) : sum;
  return v <= kMost ? sum : v;  // +inf and NaN
}

// Cephes: a polynomial near 0, where 1 - 2 / (e^2v + 1) would cancel.
KVG_INLINE F Tanh(F v) {
  const F a = Abs(v), z = v * v;
  F p = Splat(-5.70498872745e-3f);
  p = Fma(p, z, Splat(2.06390887954e-2f));
  p = Fma(p, z, Splat(-5.37397155531e-2f));
  p = Fma(p, z, Splat(1.33314422036e-1f));
  p = Fma(p, z, Splat(-3.33332819422e-1f));
  const F near = Fma(p * z, v, v);
  const F far = WithSignOf(1.0f - 2.0f / (Exp(a + a) + 1.0f), v);
  return a < 0.625f ? near : far;
}

// x * Phi(x), Phi the normal distribution function. Two minimax forms of erf (t = x / sqrt 2): near
// 0 a polynomial, beyond it 1 - exp(polynomial), whose second term is the tail itself, so that the
// negative side does not cancel.
KVG_INLINE F GeluErf(F x) {
  const F v = x * 0.70710678118654752f, t = Abs(v), s = v * v;
  F near = Splat(-5.96761703e-4f);
  near = Fma(near, s, Splat(4.99119423e-3f));
  near = Fma(near, s, Splat(-2.67681349e-2f));
  near = Fma(near, s, Splat(1.12819925e-1f));
  near = Fma(near, s, Splat(-3.76125336e-1f));
  near = Fma(near, s, Splat(1.28379166e-1f));
  near = Fma(near, v, v);
  F r = Fma(Splat(-1.72853470e-5f), t, Splat(3.83197126e-4f));
  const F u = Fma(Splat(-3.88396438e-3f), t, Splat(2.42546219e-2f));
  r = Fma(r, s, u);
  r = Fma(r, t, Splat(-1.06777877e-1f));
  r = Fma(r, t, Splat(-6.34846687e-1f));
  r = Fma(r, t, Splat(-1.28717512e-1f));
  r = Fma(r, t, -t);
  const F half_tail = 0.5f * Exp(r);
  const F far = x < 0.0f ? x * half_tail : Fma(-x, half_tail, x);
  return t > 0.927734375f ? far : 0.5f * Fma(x, near, x);
}

// Conversions of whole vectors between storage and f32.
KVG_INLINE F Widen(U16 bits, DType type) {
  if (type == DType::kBF16) return (F)(__builtin_convertvector(bits, U) << 16);
#if defined(__AVX512F__)
  return (F)_mm512_maskz_cvtph_ps(kAllLanes, (__m256i)bits);
#elif defined(__AVX2__)
  return (F)_mm256_cvtph_ps((__m128i)bits);
#else
  F v;
  for (int i = 0; i < kLanes; ++i) v[i] = F16ToF32(bits[i]);
  return v;
#endif
}
KVG_INLINE U16 Narrow(F v, DType type) {
  if (type == DType::kBF16) {
    const U bits = (U)v;
    const U rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const U quiet = (bits >> 16) | 0x40u;
    const U chosen = v == v ? rounded : quiet;
#if defined(__AVX512F__)
    return (U16)_mm512_maskz_cvtepi32_epi16(kAllLanes, (__m512i)chosen);
#else
    return __builtin_convertvector(chosen, U16);
#endif
  }
#if defined(__AVX512F__)
  return (U16)_mm512_maskz_cvtps_ph(kAllLanes, (__m512)v, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__AVX2__)
  return (U16)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
#else
  U16 bits;
  for (int i = 0; i < kLanes; ++i) bits[i] = F32ToF16(v[i]);
  return bits;
#endif
}

// Element i of an array of a float dtype.
KVG_INLINE F LoadAny(const void* p, DType type, int64_t i, Whole whole) {
  if (type == DType::kF32) return Load(static_cast<const float*>(p) + i, whole);
  return Widen(LoadAs<U16>(static_cast<const uint16_t*>(p) + i), type);
}
KVG_INLINE F LoadAny(const void* p, DType type, int64_t i, Part part) {
  if (type == DType::kF32) return Load(static_cast<const float*>(p) + i, part);
  uint16_t lanes[kLanes] = {};
  for (int k = 0; k < part.count; ++k) lanes[k] = static_cast<const uint16_t*>(p)[i + k];
  return Widen(LoadAs<U16>(lanes), type);
}
KVG_INLINE void StoreAny(void* p, DType type, int64_t i, F v, Whole whole) {
  if (type == DType::kF32) {
    Store(static_cast<float*>(p) + i, v, whole);
  } else {
    StoreAs(static_cast<uint16_t*>(p) + i, Narrow(v, type));
  }
}
KVG_INLINE void StoreAny(void* p, DType type, int64_t i, F v, Part part) {
  if (type == DType::kF32) {
    Store(static_cast<float*>(p) + i, v, part);
    return;
  }
  uint16_t lanes[kLanes];
  StoreAs(lanes, Narrow(v, type));
  for (int k = 0; k < part.count; ++k) static_cast<uint16_t*>(p)[i + k] = lanes[k];
}

}  // namespace
}  // namespace kvgauge
