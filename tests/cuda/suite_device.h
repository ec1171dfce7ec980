// SPDX-License-Identifier: Apache-2.0
// The device that tests run on: the emulated one, or with the label gpu the machine's.
#pragma once

#include "support/test_device.h"

namespace kvgauge {

// Made at the first call; lives as long as the process.
Ops& TestDevice();

// Copies from the device to the host so far, in this process; -1 where nobody counts.
int64_t CopiesToHost();

}  // namespace kvgauge
