// SPDX-License-Identifier: Apache-2.0
// Numbers rounded to those that codes of 8 bits stand for (row_rounding.h), with the same bits on
// each instruction set. A number is rounded by adding one so large that the sum has no room for
// what is below the last bit, and taking it away. It stays in registers from its row to the
// product's: a pass over memory for each of its roundings took half of the time. In an unnamed
// namespace for the reason given in panel.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/dtype.h"
#ifdef __AVX512BF16__
#include "cpu/isa/vector_math_avx512.h"
#endif
#include "cpu/linear/linear_kernels.h"
#include "kernels/row_rounding.h"

namespace kvgauge {
namespace {

inline int32_t BitsOf(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// LinearKernels::largest_bits, a loop that compilers turn into vectors.
inline int32_t LargestBits(const float* values, int64_t count) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t bits = BitsOf(values[i]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// LinearKernels::span_bits: as integers, bits of numbers of the other side are negative.
inline SpanBits BitsOfSpan(const float* values, int64_t count) {
  int32_t below = 0, above = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t bits = BitsOf(values[i]), turned = bits ^ INT32_MIN;
    above = bits > above ? bits : above;
    below = turned > below ? turned : below;
  }
  return {.below = below, .above = above};
}

// What the nearest codes of numbers stand for.
template <class V>
struct NearestInt8 {
  using F = typename V::F;
  static constexpr float kWhole = 0x1.8p23f;  // here floats are whole numbers

  explicit NearestInt8(ScaleAndZero by)
      : scale(V::Set(by.scale)), zero(V::Set(by.zero)), back(V::Set(kWhole + by.zero)) {}

  F operator()(F value) const {
    const F code = V::Add(V::Div(value, scale), zero);
    const F held = V::Min(V::Set(127.0f), V::Max(V::Set(-128.0f), code));  // NaN stays
    return V::Mul(V::Sub(V::Add(held, V::Set(kWhole)), back), scale);
  }

  F scale, zero, back;
};

template <class V>
struct NearestE4m3 {
  using F = typename V::F;

  explicit NearestE4m3(ScaleAndZero by) : scale(V::Set(by.scale)) {}

  F operator()(F value) const {
    const F code = V::Div(value, scale);
    const F held = V::Min(V::Set(448.0f), V::Max(V::Set(-448.0f), code));  // NaN stays
    // A power of two from 2^-6 to 2^8 times 1.5 * 2^20: floats there are an eighth of it apart.
    const F own = (F)((typename V::U)code & 0x7f800000u);
    const F power = V::Min(V::Set(0x1p8f), V::Max(V::Set(0x1p-6f), own));
    const F large = V::Mul(power, V::Set(0x1.8p20f));
    return V::Mul(V::Sub(V::Add(held, large), large), scale);
  }

  F scale;
};

// Vectors of a type that products take their rows in. kNormal: bf16 of which denormals may be 0.
template <class V, DType kType, bool kNormal>
struct RowNumbers {
  using F = typename V::F;
  static F Load(const uint16_t* from) {
    return kType == DType::kF16 ? V::LoadF16(from) : V::LoadBf16(from);
  }
  static void Store(uint16_t* to, F value) {
    if constexpr (kNormal) {
      V::StoreBf16Normal(to, value);
    } else {
      kType == DType::kF16 ? V::StoreF16(to, value) : V::StoreBf16(to, value);
    }
  }
  static F Rounded(F value) {
    if constexpr (kType == DType::kF32) return value;
    uint16_t bits[V::kLanes];
    Store(bits, value);
    return Load(bits);
  }
};

// Whole vectors in place, the rest through a padded copy.
template <class V, class From, class To, class Round>
void EachVector(const From* from, int64_t count, To* to, Round round) {
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) round(from + i, to + i);
  if (i == count) return;
  From tail[V::kLanes] = {};
  To made[V::kLanes];
  std::memcpy(tail, from + i, static_cast<size_t>(count - i) * sizeof(From));
  round(tail, made);
  std::memcpy(to + i, made, static_cast<size_t>(count - i) * sizeof(To));
}

template <class Numbers, class V, class Nearest, class From, class To>
void RoundNumbers(const RowPart& part) {
  const Nearest nearest(part.by);
  EachVector<V>(static_cast<const From*>(part.from), part.count, static_cast<To*>(part.to),
                [&](const From* from, To* to) {
                  typename V::F value;
                  if constexpr (sizeof(From) == 4) {
                    value = Numbers::Rounded(V::Load(from));
                  } else {
                    value = Numbers::Load(from);
                  }
                  value = nearest(value);
                  if constexpr (sizeof(To) == 4) {
                    V::Store(to, Numbers::Rounded(value));
                  } else {
                    Numbers::Store(to, value);
                  }
                });
}

template <class V, DType kType, bool kNormal, class Nearest>
void RoundNumbers(const RowPart& part) {
  using Numbers = RowNumbers<V, kType, kNormal>;
  if constexpr (kType == DType::kF32) {
    RoundNumbers<Numbers, V, Nearest, float, float>(part);
  } else if (part.from_f32) {
    part.to_f32 ? RoundNumbers<Numbers, V, Nearest, float, float>(part)
                : RoundNumbers<Numbers, V, Nearest, float, uint16_t>(part);
  } else {
    part.to_f32 ? RoundNumbers<Numbers, V, Nearest, uint16_t, float>(part)
                : RoundNumbers<Numbers, V, Nearest, uint16_t, uint16_t>(part);
  }
}

// LinearKernels::round_codes.
template <class V, DType kType>
void RoundCodes(const RowPart& part) {
  const bool int8 = part.codes == RowRounding::Codes::kInt8;
#ifdef __AVX512BF16__
  // Denormal numbers have the code of 0 then, and what a code stands for is normal or 0.
  if (kType == DType::kBF16 && part.by.scale >= 0x1p-100f) {
    using Normal = Avx512Bf16Vector;
    return int8 ? RoundNumbers<Normal, DType::kBF16, true, NearestInt8<Normal>>(part)
                : RoundNumbers<Normal, DType::kBF16, true, NearestE4m3<Normal>>(part);
  }
#endif
  int8 ? RoundNumbers<V, kType, false, NearestInt8<V>>(part)
       : RoundNumbers<V, kType, false, NearestE4m3<V>>(part);
}

}  // namespace
}  // namespace kvgauge
