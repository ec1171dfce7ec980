// SPDX-License-Identifier: Apache-2.0
// The device that tests run on: the emulated one, or with the label gpu the machine's.
#pragma once

#include "kernels/ops.h"

namespace kvgauge {

// Made at the first call; lives as long as the process.
Ops& TestDevice();
// One more, the caller's.
std::unique_ptr<Ops> MakeTestDevice();

}  // namespace kvgauge
