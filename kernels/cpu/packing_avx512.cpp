// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX512F__)
#include "cpu/packing_impl.h"
#else
#include "cpu/packing_kernels.h"
#endif

namespace kvgauge {
#if defined(__AVX512F__)
const PackingKernels& Avx512PackingKernels() { return kPackingKernels; }
#else  // another processor family: never chosen there
const PackingKernels& Avx512PackingKernels() { return PortablePackingKernels(); }
#endif
}  // namespace kvgauge
