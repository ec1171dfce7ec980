// SPDX-License-Identifier: Apache-2.0
#include "cpu/state/state_impl.h"

namespace kvgauge {
const StateKernels& PortableStateKernels() { return kStateKernels; }
}  // namespace kvgauge
