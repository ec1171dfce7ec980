// SPDX-License-Identifier: Apache-2.0
// What the checking wrappers of the op groups share. A message shows the op and all its shapes; it
// is built only when the check fails.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "core/check.h"
#include "kernels/tensor.h"

#define KVG_OP_CHECK(condition, op, ...) \
  KVG_CHECK(condition, ::kvgauge::OpMessage(op, {__VA_ARGS__}))

namespace kvgauge {

// "RmsNorm: f32[3, 64], f32[64], bf16[3, 64]"; an empty tensor is "-".
std::string OpMessage(std::string_view op, std::initializer_list<Tensor> tensors);

// All on one device; empty tensors do not count.
bool SameDevice(std::initializer_list<Tensor> tensors);
bool SameShape(const Tensor& a, const Tensor& b);
// The innermost dimension is dense. Outer strides are free.
bool HasDenseRows(const Tensor& t);
inline bool IsVector(const Tensor& t, DType dtype, int64_t size) {
  return t.dtype == dtype && t.rank == 1 && t.shape[0] == size && t.IsContiguous();
}
inline bool IsMatrix(const Tensor& t, DType dtype) {
  return t.dtype == dtype && t.rank == 2 && HasDenseRows(t);
}

// True when the leading dimensions are one evenly strided run; then *rows is the [m, d] view. A
// tensor of rank 1 is one row.
bool FoldsToRows(const Tensor& t, Tensor* rows);

}  // namespace kvgauge
