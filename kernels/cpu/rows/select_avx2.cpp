// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX2__
#include "cpu/rows/select_impl.h"

namespace kvgauge {
const SelectKernels& Avx2SelectKernels() { return kSelectKernels; }
}  // namespace kvgauge
#endif
