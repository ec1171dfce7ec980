// SPDX-License-Identifier: Apache-2.0
// Rows on their way to a product, rounded to numbers that codes of 8 bits stand for, with the bits
// of RoundRow.
#pragma once

#include "core/dtype.h"
#include "cuda/device/driver.h"
#include "kernels/row_rounding.h"

namespace kvgauge::cuda {

struct MatrixRounding {
  bool rounds = false;  // false: to the type alone
  RowRounding by;
};

struct RoundedRows {
  const void* x = nullptr;  // of any type; row i of the result is that of x at i / share
  DType x_dtype = DType::kF32;
  int64_t x_stride = 0, share = 1;
  int64_t m = 0, k = 0;                // of the result
  MatrixRounding all = {};             // of all rows; or
  const MatrixRounding* of = nullptr;  // of each matrix, and
  const int32_t* choice = nullptr;     // [m] which one a row chose
  // Rounded to the type before and behind. Zeros where the padded result is past the rows' numbers.
  DType dtype = DType::kF32;
  void* out = nullptr;  // [padded_m, padded_k]
  int64_t padded_m = 0, padded_k = 0;
};
void RoundRowsToCodes(const RoundedRows& rows, Stream stream);

}  // namespace kvgauge::cuda
