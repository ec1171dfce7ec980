// SPDX-License-Identifier: Apache-2.0
// Products of f32 matrices: every output is one fused chain over k, ascending, whatever the shape.
#pragma once

#include "cuda/device/driver.h"

namespace kvgauge::cuda {

// out[i, j] = alpha * sum over k of a[i, k] * b(j, k) (+ bias[j]), for each batch; the matrices of
// a batch follow each other without gaps.
struct Product32 {
  const float *a, *b;
  int64_t batches = 1;
  int64_t m, n, k;
  int64_t a_stride;    // between rows of a
  int64_t b_row, b_k;  // of b along j, and along k
  const float* bias = nullptr;
  float alpha = 1.0f;
  float* out;
  int64_t out_stride;
  bool add = false;  // out += the product
};
void Multiply32(const Product32& product, Stream stream);

}  // namespace kvgauge::cuda
