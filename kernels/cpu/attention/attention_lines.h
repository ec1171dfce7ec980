// SPDX-License-Identifier: Apache-2.0
// What is chosen is scattered, so no prefetcher of the processor foresees it: every call brings the
// lines that are wanted next, and asks for a few of them with every step.
#pragma once

#include "cpu/attention/attention_kernels.h"

namespace kvgauge {

// Asks for a share of the lines with every step. Of = a type of the including file's own, so that
// the linker merges no two instruction sets.
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

}  // namespace kvgauge
