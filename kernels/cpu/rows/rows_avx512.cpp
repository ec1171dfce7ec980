// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX512F__
#include "cpu/rows/rows_impl.h"

namespace kvgauge {
const RowKernels& Avx512RowKernels() { return kRowKernels; }
}  // namespace kvgauge
#endif
