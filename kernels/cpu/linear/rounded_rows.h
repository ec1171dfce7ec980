// SPDX-License-Identifier: Apache-2.0
// Numbers rounded to those that codes of 8 bits stand for (row_rounding.h), in loops that compilers
// turn into vectors of the instruction set of the file, with the same bits on each. A number is
// rounded by adding one so large that the sum has no room for what is below the last bit, and
// taking it away. In an unnamed namespace for the reason given in panel.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/linear/linear_kernels.h"
#include "kernels/row_rounding.h"

namespace kvgauge {
namespace {

inline int32_t BitsOf(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float FloatOf(int32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline float Held(float value, float least, float most) {
  const float above = value < least ? least : value;
  return above > most ? most : above;
}

// LinearKernels::largest_bits.
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

// LinearKernels::round_codes.
inline void RoundCodes(RowRounding::Codes codes, ScaleAndZero by, int64_t count, float* values) {
  const float scale = by.scale;
  if (codes == RowRounding::Codes::kInt8) {
    constexpr float kWhole = 0x1.8p23f;  // here floats are whole numbers
    const float zero = by.zero, back = kWhole + zero;
    for (int64_t i = 0; i < count; ++i) {
      const float value = Held(values[i] / scale + zero, -128.0f, 127.0f);
      values[i] = ((value + kWhole) - back) * scale;
    }
    return;
  }
  // A power of two from 2^-6 to 2^8 times 1.5 * 2^20: floats there are an eighth of it apart.
  constexpr int32_t kLeast = (127 - 6) << 23, kMost = (127 + 8) << 23, kUp = (20 << 23) | 0x400000;
  for (int64_t i = 0; i < count; ++i) {
    // The power comes of what is not held, or compilers make a case of each bound.
    const float value = values[i] / scale, held = Held(value, -448.0f, 448.0f);
    int32_t power = BitsOf(value) & 0x7f800000;
    power = power < kLeast ? kLeast : power;
    power = power > kMost ? kMost : power;
    const float large = FloatOf(power + kUp);
    values[i] = ((held + large) - large) * scale;
  }
}

}  // namespace
}  // namespace kvgauge
