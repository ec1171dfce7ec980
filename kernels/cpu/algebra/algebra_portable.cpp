// SPDX-License-Identifier: Apache-2.0
#include "cpu/algebra/algebra_impl.h"

namespace kvgauge {
const AlgebraKernels& PortableAlgebraKernels() { return kAlgebraKernels; }
}  // namespace kvgauge
