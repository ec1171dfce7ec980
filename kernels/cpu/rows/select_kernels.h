// SPDX-License-Identifier: Apache-2.0
// Kernels of one row behind SelectOps. One table per instruction set.
#pragma once

#include <cstdint>

#include "kernels/select.h"

namespace kvgauge {

struct SelectKernels {
  // Keys whose unsigned order is that of the values: both zeros are one key, NaN is 0.
  void (*order_keys)(const float* x, int64_t n, uint32_t* keys);
  // Ascending indices of the keys above `threshold` and of the first `ties` keys equal to it.
  void (*take)(const uint32_t* keys, int64_t n, uint32_t threshold, int64_t ties, int32_t* out);
  // out += weight * x.
  void (*add_scaled)(const float* x, float weight, int64_t n, float* out);
  // out[j] over padded[j .. j + kernel).
  void (*pool)(const float* padded, int64_t n, int64_t kernel, Pooling mode, float* out);
};

const SelectKernels& PortableSelectKernels();
const SelectKernels& Avx2SelectKernels();
const SelectKernels& Avx512SelectKernels();

}  // namespace kvgauge
