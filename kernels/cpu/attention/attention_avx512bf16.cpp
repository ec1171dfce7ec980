// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX512BF16__
#include "cpu/attention/attention_tiles.h"
#include "cpu/isa/vector_math_avx512.h"

namespace kvgauge {
namespace {

AttentionKernels OfThisProcessor() {
  AttentionKernels k = MakeAttentionKernels<Avx512Bf16Vector>();
  // Others may take a hundred cycles and more where a number is denormal.
  if (!__builtin_cpu_is("amd")) k.raise_rows = nullptr;
  return k;
}

}  // namespace

const AttentionKernels& Avx512Bf16AttentionKernels() {
  static const AttentionKernels kernels = OfThisProcessor();
  return kernels;
}
}  // namespace kvgauge
#endif
