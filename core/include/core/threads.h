// SPDX-License-Identifier: Apache-2.0
// How many threads the compute backends use. A value, passed down; no global.
#pragma once

#include <vector>

namespace kvgauge {

struct ThreadSettings {
  int threads = 1;
};

// Numbers of the processors that the calling thread may run on (affinity mask), ascending; empty
// where the system does not tell.
std::vector<int> AllowedProcessors();
// How many they are, at least 1.
int AvailableProcessors();

// `requested` <= 0 means one thread per available processor.
ThreadSettings MakeThreadSettings(int requested);

}  // namespace kvgauge
