// SPDX-License-Identifier: Apache-2.0
#include "cpu/packing_impl.h"

namespace kvgauge {
const PackingKernels& PortablePackingKernels() { return kPackingKernels; }
}  // namespace kvgauge
