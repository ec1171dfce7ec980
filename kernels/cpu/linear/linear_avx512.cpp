// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX512F__
#include "cpu/linear/linear_multiply.h"
#include "cpu/linear/panel_avx512.h"

namespace kvgauge {
const LinearKernels& Avx512LinearKernels() { return LinearKernelsOf<Panels>(); }
}  // namespace kvgauge
#endif
