// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX512F__)
#include "cpu/algebra/algebra_impl.h"
#else
#include "cpu/algebra/algebra_kernels.h"
#endif

namespace kvgauge {
#if defined(__AVX512F__)
const AlgebraKernels& Avx512AlgebraKernels() { return kAlgebraKernels; }
#else  // another processor family: never chosen there
const AlgebraKernels& Avx512AlgebraKernels() { return PortableAlgebraKernels(); }
#endif
}  // namespace kvgauge
