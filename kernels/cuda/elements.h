// SPDX-License-Identifier: Apache-2.0
// Element access by a dtype that is known when the kernel runs, and order-preserving keys.
#pragma once

#include "core/dtype.h"
#include "cuda/device/simt.h"

namespace kvgauge::cuda {

KVG_DEVICE float LoadAs(DType dtype, const void* base, int64_t i) {
  if (dtype == DType::kF16) return HalfToFloat(static_cast<const uint16_t*>(base)[i]);
  if (dtype == DType::kBF16) return Bf16ToFloat(static_cast<const uint16_t*>(base)[i]);
  return static_cast<const float*>(base)[i];
}

KVG_DEVICE void StoreAs(DType dtype, void* base, int64_t i, float value) {
  if (dtype == DType::kF16) {
    static_cast<uint16_t*>(base)[i] = FloatToHalf(value);
  } else if (dtype == DType::kBF16) {
    static_cast<uint16_t*>(base)[i] = FloatToBf16(value);
  } else {
    static_cast<float*>(base)[i] = value;
  }
}

// Ascending with the value; both zeros are one, every NaN is 0, below -inf.
KVG_DEVICE uint32_t KeyOf(float value) {
  if (IsNan(value)) return 0;
  const uint32_t bits = BitsOf(value + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
KVG_DEVICE float ValueOf(uint32_t key) {
  if (key == 0) return FloatOf(0x7fc00000u);
  return FloatOf(key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}

// Row and column of element i of a matrix, without a 64-bit division where that is spared.
struct Place2 {
  int64_t row, column;
};
KVG_DEVICE Place2 PlaceOf(int64_t i, int64_t columns) {
  if ((i | columns) >> 32 == 0) {
    const auto small = static_cast<uint32_t>(i), width = static_cast<uint32_t>(columns);
    return {small / width, small % width};
  }
  return {i / columns, i % columns};
}

}  // namespace kvgauge::cuda
