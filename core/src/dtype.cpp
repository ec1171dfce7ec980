// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

#include <array>
#include <utility>

#include "core/check.h"

namespace kvgauge {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};
constexpr std::array<DTypeRow, 7> kTable = {{{DType::kF32, "f32", 4},
                                             {DType::kF16, "f16", 2},
                                             {DType::kBF16, "bf16", 2},
                                             {DType::kI8, "i8", 1},
                                             {DType::kU8, "u8", 1},
                                             {DType::kI32, "i32", 4},
                                             {DType::kI64, "i64", 8}}};

const DTypeRow& Row(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  KVG_CHECK(index < kTable.size(), "unknown dtype");
  return kTable[index];
}

}  // namespace

int64_t SizeOf(DType dtype) { return Row(dtype).bytes; }
std::string_view NameOf(DType dtype) { return Row(dtype).name; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DTypeRow& row : kTable) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

float F16ToF32(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  // Subnormal: mantissa * 2^-24 is exact in f32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {
    // Subnormal result: adding 0.5 puts the rounded 2^-24 multiples in the low mantissa bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace kvgauge
