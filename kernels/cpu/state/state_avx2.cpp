// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX2__
#include "cpu/state/state_impl.h"

namespace kvgauge {
const StateKernels& Avx2StateKernels() { return kStateKernels; }
}  // namespace kvgauge
#endif
