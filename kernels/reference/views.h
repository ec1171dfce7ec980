// SPDX-License-Identifier: Apache-2.0
// Element access for the twins: any float dtype through double, rows by stride.
#pragma once

#include "core/dtype.h"
#include "kernels/tensor.h"

namespace kvgauge {

inline double At(const Tensor& t, int64_t row, int64_t column) {
  const int64_t i = row * t.stride[0] + column * t.stride[1];
  switch (t.dtype) {
    case DType::kBF16:
      return Bf16ToF32(t.As<uint16_t>()[i]);
    case DType::kF16:
      return F16ToF32(t.As<uint16_t>()[i]);
    default:
      return t.f32()[i];
  }
}

// Rounds to f32 first, then to the storage type, as every backend does.
inline void Put(const Tensor& t, int64_t row, int64_t column, double value) {
  const int64_t i = row * t.stride[0] + column * t.stride[1];
  const float rounded = static_cast<float>(value);
  switch (t.dtype) {
    case DType::kBF16:
      t.As<uint16_t>()[i] = F32ToBf16(rounded);
      return;
    case DType::kF16:
      t.As<uint16_t>()[i] = F32ToF16(rounded);
      return;
    default:
      t.f32()[i] = rounded;
  }
}

}  // namespace kvgauge
