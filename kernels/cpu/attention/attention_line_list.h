// SPDX-License-Identifier: Apache-2.0
// The lines of memory that a schedule of chosen entries wants next (ChosenLines).
#pragma once

#include <cstdint>

#include "cpu/attention/attention_kernels.h"

namespace kvgauge::attention_schedule {

// Lines to be fetched; what is too much is left for its turn.
class LineList {
 public:
  static constexpr int64_t kLineBytes = 64;

  void Add(const void* first, int64_t stride, int64_t count) {
    const auto* line = static_cast<const char*>(first);
    for (int64_t i = 0; i < count && count_ < kMost; ++i, line += stride) at_[count_++] = line;
  }
  // Those with any of these bytes.
  void AddBytes(const void* first, int64_t bytes) {
    const auto skip = static_cast<int64_t>(reinterpret_cast<uintptr_t>(first) % kLineBytes);
    Add(static_cast<const char*>(first) - skip, kLineBytes,
        (skip + bytes + kLineBytes - 1) / kLineBytes);
  }
  ChosenLines Part(int part, int parts) const {
    const int from = count_ * part / parts;
    return {at_ + from, count_ * (part + 1) / parts - from};
  }

 private:
  static constexpr int kMost = 512;
  const char* at_[kMost];
  int count_ = 0;
};

}  // namespace kvgauge::attention_schedule
