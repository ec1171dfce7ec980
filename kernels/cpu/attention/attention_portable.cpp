// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention/attention_tiles.h"
#include "cpu/isa/vector_math_portable.h"

namespace kvgauge {
const AttentionKernels& PortableAttentionKernels() {
  static constinit const AttentionKernels kernels = MakeAttentionKernels<PortableVector>();
  return kernels;
}
}  // namespace kvgauge
