// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX2__
#include "cpu/attention/attention_tiles.h"
#include "cpu/isa/vector_math_avx2.h"

namespace kvgauge {
const AttentionKernels& Avx2AttentionKernels() {
  static constinit const AttentionKernels kernels = MakeAttentionKernels<Avx2Vector>();
  return kernels;
}
}  // namespace kvgauge
#endif
