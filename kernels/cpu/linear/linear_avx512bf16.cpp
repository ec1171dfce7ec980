// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX512BF16__
#include "cpu/linear/linear_multiply.h"
#include "cpu/linear/panel_avx512bf16.h"

namespace kvgauge {
const LinearKernels& Avx512Bf16LinearKernels() { return LinearKernelsOf<Panels>(); }
}  // namespace kvgauge
#endif
