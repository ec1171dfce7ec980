// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX2__)
#include "cpu/algebra/algebra_impl.h"
#else
#include "cpu/algebra/algebra_kernels.h"
#endif

namespace kvgauge {
#if defined(__AVX2__)
const AlgebraKernels& Avx2AlgebraKernels() { return kAlgebraKernels; }
#else  // another processor family: never chosen there
const AlgebraKernels& Avx2AlgebraKernels() { return PortableAlgebraKernels(); }
#endif
}  // namespace kvgauge
