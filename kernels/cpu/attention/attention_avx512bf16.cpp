// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX512BF16__
#include "cpu/attention/attention_tiles.h"
#include "cpu/isa/vector_math_avx512.h"

namespace kvgauge {
const AttentionKernels& Avx512Bf16AttentionKernels() {
  static constinit const AttentionKernels kernels = MakeAttentionKernels<Avx512Bf16Vector>();
  return kernels;
}
}  // namespace kvgauge
#endif
