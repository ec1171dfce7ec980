// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX2__)
#include "cpu/rows/rows_impl.h"
#else
#include "cpu/rows/rows_kernels.h"
#endif

namespace kvgauge {
#if defined(__AVX2__)
const RowKernels& Avx2RowKernels() { return kRowKernels; }
#else  // another processor family: never chosen there
const RowKernels& Avx2RowKernels() { return PortableRowKernels(); }
#endif
}  // namespace kvgauge
