// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX512F__)
#include "cpu/rows/rows_impl.h"
#else
#include "cpu/rows/rows_kernels.h"
#endif

namespace kvgauge {
#if defined(__AVX512F__)
const RowKernels& Avx512RowKernels() { return kRowKernels; }
#else  // another processor family: never chosen there
const RowKernels& Avx512RowKernels() { return PortableRowKernels(); }
#endif
}  // namespace kvgauge
