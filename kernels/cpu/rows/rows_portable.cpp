// SPDX-License-Identifier: Apache-2.0
#include "cpu/rows/rows_impl.h"

namespace kvgauge {
const RowKernels& PortableRowKernels() { return kRowKernels; }
}  // namespace kvgauge
