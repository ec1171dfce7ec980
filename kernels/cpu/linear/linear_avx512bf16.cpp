// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX512BF16__
#include "cpu/linear/linear_multiply.h"
#include "cpu/linear/panel_avx512bf16.h"

namespace kvgauge {
namespace {

// Those of AVX-512, but for products of bf16 and of bytes, which have instructions of their own.
LinearKernels WithDotProducts() {
  LinearKernels k = Avx512LinearKernels();
  SetBf16Products<Panels>(k);
  SetCodedProducts<Panels::Vec>(k);
  k.round_codes[static_cast<size_t>(DType::kBF16)] = RoundCodes<Panels::Vec, DType::kBF16>;
  return k;
}

}  // namespace

const LinearKernels& Avx512Bf16LinearKernels() {
  static const LinearKernels kernels = WithDotProducts();
  return kernels;
}

}  // namespace kvgauge
#endif
