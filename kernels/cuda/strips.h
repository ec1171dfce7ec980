// SPDX-License-Identifier: Apache-2.0
// Products of few rows with 16-bit weights, which take the time of reading the weights. The bits
// are those of linear.cu: spans of kProductSpan along k, a chain of products of 16 in each.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "cuda/device/driver.h"

namespace kvgauge::cuda {

inline constexpr int kUnit = 32;  // of k, to which rows of 16-bit matrices are padded
inline constexpr int64_t kMostStripColumns = 64;  // rows of x, which are columns of a strip

struct StripCall {
  const void* x;  // [m, x_columns], of any type
  DType x_dtype;
  int64_t x_stride, x_columns;
  const uint16_t* w;  // [n, k]
  DType dtype;        // of w; x is rounded to it
  const float* bias;  // or null
  float* out;         // [m, n]; where k has several spans: partial sums [spans, m, n]
  int64_t m, n, k;    // m: at most kMostStripColumns; k: a multiple of kUnit
  int64_t out_stride;
  bool add;
};
// `scratch`: StripScratchBytes, 16-byte aligned.
void MultiplyStrips(const StripCall& call, void* scratch, Stream stream);
int64_t StripScratchBytes(int64_t m, int64_t k);

}  // namespace kvgauge::cuda
