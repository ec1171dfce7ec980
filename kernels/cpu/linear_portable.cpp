// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear_multiply.h"
#include "cpu/panel_portable.h"

namespace kvgauge {

const LinearKernels& PortableLinearKernels() { return LinearKernelsOf<Panels>(); }

}  // namespace kvgauge
