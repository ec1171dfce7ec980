// SPDX-License-Identifier: Apache-2.0
// Memory of the host that lies among a device's own: which addresses it has, and whether any of it
// was written. The process has one such table for all devices; any thread may ask.
#pragma once

#include <cstdint>

#include "cuda/device/driver.h"

namespace kvgauge::cuda {

// As MallocMapped. The system takes longer to lock pages than a bus to fill them, so memory that is
// given back is kept for later takers of as much. It goes to the system when that has no more to
// lock, or by DropSpareMapped. What was submitted to the stream may still use what is given back:
// only a taker of the same stream gets it, whose first write goes there, too, and is noted.
void* TakeMapped(int64_t size_bytes, Stream stream);
void GiveMapped(void* data);
void DropSpareMapped();
// What is taken, without what is kept.
int64_t MappedBytesTaken();

// Whether there is any: mostly there is none, and nothing else is asked.
bool AnyMapped();

// To be called by whoever submits work to the stream that may write such memory. The stream of
// copies then waits for it before it reads any (WritesToMapped has changed).
void NoteWriteToMapped();
int64_t WritesToMapped();

// Answers for one address after the other, where neighbours mostly lie together. It serves one
// call, because it does not forget what is given back later.
class MappedLookup {
 public:
  bool Holds(const void* data) {
    const auto address = reinterpret_cast<uintptr_t>(data);
    if (address < begin_ || address >= end_) Find(address);
    return holds_;
  }

 private:
  void Find(uintptr_t address);

  // All of it, or nothing of it, is such memory.
  uintptr_t begin_ = 0, end_ = 0;
  bool holds_ = false;
};

}  // namespace kvgauge::cuda
