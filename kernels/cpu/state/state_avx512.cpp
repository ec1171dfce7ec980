// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX512F__
#include "cpu/state/state_impl.h"

namespace kvgauge {
const StateKernels& Avx512StateKernels() { return kStateKernels; }
}  // namespace kvgauge
#endif
