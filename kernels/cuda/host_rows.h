// SPDX-License-Identifier: Apache-2.0
// Rows of weights on the host, in the type in which a device holds them.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/dtype.h"
#include "kernels/tensor.h"

namespace kvgauge::cuda {

// Element i of a row in host memory that may start at any byte.
inline float HostNumber(DType dtype, const char* row, int64_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, row + 4 * i, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, row + 2 * i, sizeof bits);
  return dtype == DType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
}

// Row `row` of a matrix on the host as `store`, densely.
inline void StoreRow(const Tensor& part, int64_t row, DType store, char* to) {
  const int64_t k = part.shape[1], size = SizeOf(part.dtype);
  const char* from = static_cast<const char*>(part.data) + row * part.stride[0] * size;
  if (part.dtype == store) {
    std::memcpy(to, from, static_cast<size_t>(k * size));
    return;
  }
  for (int64_t i = 0; i < k; ++i) {
    const float value = HostNumber(part.dtype, from, i);
    if (store == DType::kF32) {
      std::memcpy(to + 4 * i, &value, sizeof value);
    } else {
      const uint16_t bits = store == DType::kF16 ? F32ToF16(value) : F32ToBf16(value);
      std::memcpy(to + 2 * i, &bits, sizeof bits);
    }
  }
}

}  // namespace kvgauge::cuda
