// SPDX-License-Identifier: Apache-2.0
#ifdef __AMX_BF16__
#include "cpu/linear/linear_multiply.h"
#include "cpu/linear/panel_amx.h"

namespace kvgauge {
const LinearKernels& AmxLinearKernels() { return LinearKernelsOf<Panels>(); }
}  // namespace kvgauge
#endif
