// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear/linear_multiply.h"
#include "cpu/linear/panel_portable.h"

namespace kvgauge {
const LinearKernels& PortableLinearKernels() { return LinearKernelsOf<Panels>(); }
}  // namespace kvgauge
