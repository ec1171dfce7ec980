// SPDX-License-Identifier: Apache-2.0
#include "core/threads.h"

#include <sched.h>

#include <algorithm>

namespace kvgauge {

int AvailableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

ThreadSettings MakeThreadSettings(int requested) {
  return {.threads = requested > 0 ? requested : AvailableProcessors()};
}

}  // namespace kvgauge
