// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX512F__
#include "cpu/rows/select_impl.h"

namespace kvgauge {
const SelectKernels& Avx512SelectKernels() { return kSelectKernels; }
}  // namespace kvgauge
#endif
