// SPDX-License-Identifier: Apache-2.0
#include "core/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace kvgauge {

int64_t MachineMemoryBytes() {
  return int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)};
}

int64_t UsableMemoryBytes() {
  int64_t least = MachineMemoryBytes();
  // Versions 2 and 1, as containers see their own group. "max" is no number.
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    int64_t limit = 0;
    if (file >> limit && limit > 0) least = std::min(least, limit);
  }
  return least;
}

}  // namespace kvgauge
