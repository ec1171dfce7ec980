// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX2__)
#include "cpu/packing_impl.h"
#else
#include "cpu/packing_kernels.h"
#endif

namespace kvgauge {
#if defined(__AVX2__)
const PackingKernels& Avx2PackingKernels() { return kPackingKernels; }
#else  // another processor family: never chosen there
const PackingKernels& Avx2PackingKernels() { return PortablePackingKernels(); }
#endif
}  // namespace kvgauge
