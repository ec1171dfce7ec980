// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX512F__
#include "cpu/algebra/algebra_impl.h"

namespace kvgauge {
const AlgebraKernels& Avx512AlgebraKernels() { return kAlgebraKernels; }
}  // namespace kvgauge
#endif
