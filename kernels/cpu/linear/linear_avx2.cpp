// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX2__
#include "cpu/linear/linear_multiply.h"
#include "cpu/linear/panel_avx2.h"

namespace kvgauge {
const LinearKernels& Avx2LinearKernels() { return LinearKernelsOf<Panels>(); }
}  // namespace kvgauge
#endif
