// SPDX-License-Identifier: Apache-2.0
// Row kernels: each works on one row (or one run of columns), so what a row gets cannot depend on
// other rows. One table per instruction set.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/rows.h"

namespace kvgauge {

struct RowKernels {
  void (*rms_norm)(const float* x, const float* weight, int64_t d, float offset, float eps,
                   void* out, DType out_type);
  // weight, bias: may be null.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, int64_t d, float eps,
                     void* out, DType out_type);
  // One row of the table; axis may be null.
  void (*rope_table)(const int32_t* positions, const float* inverse_frequency, const int32_t* axis,
                     int64_t half, float factor, float* cos, float* sin);
  // All heads of one position.
  void (*rope)(const float* cos, const float* sin, int64_t half, RopeLayout layout, bool inverse,
               float* x, int64_t heads, int64_t head_stride);
  void (*activate)(const float* x, int64_t n, Activation act, float* out);
  void (*gated_activate)(const float* gate, const float* up, int64_t n, Activation act, void* out,
                         DType out_type);
  void (*combine)(const float* a, const float* b, int64_t n, Binary op, float* out);
  void (*affine)(const float* x, int64_t n, float scale, float shift, float* out);
  void (*soft_cap)(const float* x, int64_t n, float cap, float* out);
  void (*softmax)(const float* x, int64_t n, float scale, float* out);
  float (*log_sum_exp)(const float* x, int64_t n);
  float (*reduce)(const float* x, int64_t n, Reduction kind);
  // x: [m, columns] with columns <= kColumnBlock.
  void (*reduce_columns)(const float* x, int64_t stride, int64_t m, int64_t columns, Reduction kind,
                         float* out);
  int64_t (*arg_max)(const float* x, int64_t n);
  void (*convert)(const void* x, DType type, int64_t n, void* out, DType out_type);
};

inline constexpr int64_t kColumnBlock = 2048;

const RowKernels& PortableRowKernels();
const RowKernels& Avx2RowKernels();
const RowKernels& Avx512RowKernels();

}  // namespace kvgauge
