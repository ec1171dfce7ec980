// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX512F__)
#include "cpu/rows/select_impl.h"
#else
#include "cpu/rows/select_kernels.h"
#endif

namespace kvgauge {
#if defined(__AVX512F__)
const SelectKernels& Avx512SelectKernels() { return kSelectKernels; }
#else  // another processor family: never chosen there
const SelectKernels& Avx512SelectKernels() { return PortableSelectKernels(); }
#endif
}  // namespace kvgauge
