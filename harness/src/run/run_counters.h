// SPDX-License-Identifier: Apache-2.0
// How far a run is, counted by whoever runs a part of it and shown by one of them.
#pragma once

#include <atomic>
#include <cstdint>

namespace kvgauge {

// May lie in memory that processes share: all zero at first.
struct RunCounters {
  std::atomic<int64_t> samples_skipped = 0;  // recorded before
  std::atomic<int64_t> samples_begun = 0;
  std::atomic<int64_t> cells_begun = 0, cells_done = 0, cells_failed = 0;
  std::atomic<int64_t> full_scores = 0, other_scores = 0;       // of the full cache and of rows
  std::atomic<double> full_score_sum = 0, other_score_sum = 0;  // as people read them
};
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free,
              "processes share them");

}  // namespace kvgauge
