// SPDX-License-Identifier: Apache-2.0
// What memory there is.
#pragma once

#include <cstdint>

namespace kvgauge {

// Of the machine.
int64_t MachineMemoryBytes();
// What this process may use of it: less where a control group says so.
int64_t UsableMemoryBytes();

}  // namespace kvgauge
