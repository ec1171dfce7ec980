// SPDX-License-Identifier: Apache-2.0
// Element types of tensors and exact scalar conversions between the float formats.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvgauge {

// Values are written to files: do not renumber.
enum class DType : uint8_t {
  kF32 = 0,
  kF16 = 1,
  kBF16 = 2,
  kI8 = 3,
  kU8 = 4,
  kI32 = 5,
  kI64 = 6,
};

int64_t SizeOf(DType dtype);
std::string_view NameOf(DType dtype);  // "f32", "bf16", ...
std::optional<DType> DTypeFromName(std::string_view name);
inline bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

inline float Bf16ToF32(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Round to nearest, ties to even; NaN stays NaN (quiet).
inline uint16_t F32ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float F16ToF32(uint16_t bits);
// Round to nearest, ties to even; overflow becomes infinity; NaN stays NaN (quiet).
uint16_t F32ToF16(float value);

}  // namespace kvgauge
