// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/dtype.h"

namespace kvgauge {

// What is left of a number that is stored as `dtype`. Rounds as the conversions of core/dtype.h do;
// types that are no 16-bit float change nothing.
inline float Rounded(DType dtype, float value) {
  if (dtype == DType::kF16) return F16ToF32(F32ToF16(value));
  if (dtype == DType::kBF16) return Bf16ToF32(F32ToBf16(value));
  return value;
}

}  // namespace kvgauge
