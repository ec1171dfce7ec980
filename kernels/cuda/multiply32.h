// SPDX-License-Identifier: Apache-2.0
// Products of f32 matrices: every output is one fused chain over k, ascending, whatever the shape.
#pragma once

#include "cuda/device/driver.h"
#include "cuda/experts.h"

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
// With a matrix for each row, in place of b: rows in tiles of kRows32, one batch.
inline constexpr int64_t kRows32 = 64;
void MultiplyChosen32(const Product32& product, const void* const* matrices, const ChosenRows& rows,
                      Stream stream);

}  // namespace kvgauge::cuda
