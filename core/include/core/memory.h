// SPDX-License-Identifier: Apache-2.0
// Sizes of the machine's memory.
#pragma once

#include <cstdint>

namespace kvgauge {

// Physical memory of the machine.
int64_t MachineMemoryBytes();
// What this process may use of it: less if a control group limits it.
int64_t UsableMemoryBytes();

}  // namespace kvgauge
