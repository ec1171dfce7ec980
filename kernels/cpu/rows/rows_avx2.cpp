// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX2__
#include "cpu/rows/rows_impl.h"

namespace kvgauge {
const RowKernels& Avx2RowKernels() { return kRowKernels; }
}  // namespace kvgauge
#endif
