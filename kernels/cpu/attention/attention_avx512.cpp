// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX512F__
#include "cpu/attention/attention_tiles.h"
#include "cpu/isa/vector_math_avx512.h"

namespace kvgauge {
const AttentionKernels& Avx512AttentionKernels() {
  static constinit const AttentionKernels kernels = MakeAttentionKernels<Avx512Vector>();
  return kernels;
}
}  // namespace kvgauge
#endif
