// SPDX-License-Identifier: Apache-2.0
#include "cpu/rows/select_impl.h"

namespace kvgauge {
const SelectKernels& PortableSelectKernels() { return kSelectKernels; }
}  // namespace kvgauge
