// SPDX-License-Identifier: Apache-2.0
// Kernels of one row behind PackingOps. One table per instruction set.
#pragma once

#include <cstdint>

#include "kernels/packing.h"

namespace kvgauge {

struct PackingKernels {
  void (*pack)(const uint8_t* codes, int64_t n, int bits, uint8_t* packed);
  void (*unpack)(const uint8_t* packed, int64_t n, int bits, uint8_t* codes);
  // zero is unused for kSymmetric.
  void (*quantize)(const float* x, int64_t n, int bits, int64_t group, GroupQuantization kind,
                   uint8_t* codes, float* scale, float* zero);
  void (*dequantize)(const uint8_t* codes, const float* scale, const float* zero, int64_t n,
                     int bits, int64_t group, GroupQuantization kind, float* out);
};

const PackingKernels& PortablePackingKernels();
const PackingKernels& Avx2PackingKernels();
const PackingKernels& Avx512PackingKernels();

}  // namespace kvgauge
