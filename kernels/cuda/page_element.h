// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/dtype.h"
#include "cuda/device/simt.h"

namespace kvgauge::cuda {

KVG_DEVICE float PageElement(DType dtype, const void* page, int index) {
  if (dtype == DType::kF32) return static_cast<const float*>(page)[index];
  const uint16_t bits = static_cast<const uint16_t*>(page)[index];
  return dtype == DType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits);
}

}  // namespace kvgauge::cuda
