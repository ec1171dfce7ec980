// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX2__)
#include "cpu/rows/select_impl.h"
#else
#include "cpu/rows/select_kernels.h"
#endif

namespace kvgauge {
#if defined(__AVX2__)
const SelectKernels& Avx2SelectKernels() { return kSelectKernels; }
#else  // another processor family: never chosen there
const SelectKernels& Avx2SelectKernels() { return PortableSelectKernels(); }
#endif
}  // namespace kvgauge
