// SPDX-License-Identifier: Apache-2.0
// What is wanted next, fetched a little with every step: all at once would hold up the loads of
// what is multiplied until memory has answered, and later there would be nothing left to ask for.
//
// Of = a type of the including file's own, so that the linker merges no two instruction sets.
#pragma once

#include "cpu/attention/attention_kernels.h"

namespace kvgauge {

// Lines that lie side by side, as many with every step; what is too much for that comes first.
struct LineShare {
  const char* next;
  unsigned first, per_step;
};

template <class Of>
struct ByteFeed {
  const char* next;
  unsigned per_step;  // bytes

  [[gnu::always_inline]] explicit ByteFeed(const LineShare& share)
      : next(share.next), per_step(share.per_step * 64) {
    for (unsigned i = share.first; i > 0; --i, next += 64) __builtin_prefetch(next, 0, 2);
  }
  [[gnu::always_inline]] void Step() {
    for (const char* const stop = next + per_step; next != stop; next += 64) {
      __builtin_prefetch(next, 0, 2);
    }
  }
};

// Lines that are scattered, as what is chosen is: no prefetcher of the processor foresees them.
template <class Of>
struct LineFeed {
  const char* const* next;
  const char* const* end;
  int64_t per_step;

  [[gnu::always_inline]] LineFeed(const char* const* from, const char* const* to, int steps)
      : next(from), end(to), per_step((to - from + steps - 1) / steps) {}
  [[gnu::always_inline]] void Step() {
    const auto* stop = end - next < per_step ? end : next + per_step;
    for (; next < stop; ++next) __builtin_prefetch(*next, 0, 2);
  }
};

// Rows of entries, which are as scattered.
template <class Of>
struct RowFeed {
  const char* const* next;
  const char* const* end;
  int64_t bytes, per_step;

  [[gnu::always_inline]] RowFeed(const WantedRows& rows, int steps)
      : next(rows.at),
        end(rows.at + rows.count),
        bytes(rows.bytes),
        per_step((rows.count + steps - 1) / steps) {}
  [[gnu::always_inline]] void Step() {
    if (next == end) return;
    const auto* stop = end - next < per_step ? end : next + per_step;
    for (; next < stop; ++next) {
      const char* line = *next - reinterpret_cast<uintptr_t>(*next) % 64;
      for (; line < *next + bytes; line += 64) __builtin_prefetch(line, 0, 2);
    }
  }
};

}  // namespace kvgauge
