// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/dtype.h"

namespace kvgauge {

// `value` after it was stored as `dtype`: rounded as the conversions of core/dtype.h do. Other
// types than 16-bit floats change nothing.
inline float Rounded(DType dtype, float value) {
  if (dtype == DType::kF16) return F16ToF32(F32ToF16(value));
  if (dtype == DType::kBF16) return Bf16ToF32(F32ToBf16(value));
  return value;
}

}  // namespace kvgauge
