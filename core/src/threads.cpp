// SPDX-License-Identifier: Apache-2.0
#include "core/threads.h"

#include <sched.h>

#include <algorithm>

namespace kvgauge {

std::vector<int> AllowedProcessors() {
  std::vector<int> numbers;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return numbers;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (CPU_ISSET(number, &set)) numbers.push_back(number);
  }
  return numbers;
}

int AvailableProcessors() { return std::max(1, static_cast<int>(AllowedProcessors().size())); }

ThreadSettings MakeThreadSettings(int requested) {
  return {.threads = requested > 0 ? requested : AvailableProcessors()};
}

}  // namespace kvgauge
