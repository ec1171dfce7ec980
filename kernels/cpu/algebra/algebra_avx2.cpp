// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX2__
#include "cpu/algebra/algebra_impl.h"

namespace kvgauge {
const AlgebraKernels& Avx2AlgebraKernels() { return kAlgebraKernels; }
}  // namespace kvgauge
#endif
