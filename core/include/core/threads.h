// SPDX-License-Identifier: Apache-2.0
// How many threads the compute backends use. A value, passed down; no global.
#pragma once

namespace kvgauge {

struct ThreadSettings {
  int threads = 1;
};

// Processors this process may run on (affinity mask), at least 1.
int AvailableProcessors();

// `requested` <= 0 means one thread per available processor.
ThreadSettings MakeThreadSettings(int requested);

}  // namespace kvgauge
