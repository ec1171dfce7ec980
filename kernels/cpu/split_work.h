// SPDX-License-Identifier: Apache-2.0
// Spreads independent pieces of work over threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "core/threads.h"

namespace kvgauge {

// Below this many nanoseconds of work waking the other threads costs more than they save.
inline constexpr double kWorthThreads_ns = 20000;

// Whether so much work is to be shared. Not inside a task, which has one thread.
inline bool WorthThreads(ThreadSettings threads, int64_t count, double cost_ns) {
  return threads.threads > 1 && count > 1 &&
         static_cast<double>(count) * cost_ns > kWorthThreads_ns && omp_in_parallel() == 0;
}

// body(i) for i in [0, count) on so many threads, each of which takes a run. One opens no region:
// even a team of one costs more than a few rows.
template <class Body>
void RunsFor(int workers, int64_t count, const Body& body) {
  if (workers <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel for schedule(static) num_threads(workers)
  for (int64_t i = 0; i < count; ++i) body(i);
}

// The same for pieces that differ: whoever is free takes the next.
template <class Body>
void PiecesFor(int workers, int64_t count, const Body& body) {
  if (workers <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(workers)
  for (int64_t i = 0; i < count; ++i) body(i);
}

// body(i, worker) for i in [0, count), each of about `cost_ns`; worker < threads.threads is for
// scratch memory. One thread runs them in order; with more, each takes one contiguous run.
template <class Body>
void SplitWorkByWorker(ThreadSettings threads, int64_t count, double cost_ns, const Body& body) {
  if (!WorthThreads(threads, count, cost_ns)) {
    const int worker = omp_get_thread_num();
    for (int64_t i = 0; i < count; ++i) body(i, worker);
    return;
  }
  const int team = static_cast<int>(std::min<int64_t>(threads.threads, count));
#pragma omp parallel num_threads(team)
  {
    const int worker = omp_get_thread_num();
#pragma omp for schedule(static)
    for (int64_t i = 0; i < count; ++i) body(i, worker);
  }
}

// The same for work without scratch: body(i).
template <class Body>
void SplitWork(ThreadSettings threads, int64_t count, double cost_ns, const Body& body) {
  SplitWorkByWorker(threads, count, cost_ns, [&body](int64_t i, int) { body(i); });
}

}  // namespace kvgauge
