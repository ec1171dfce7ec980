// SPDX-License-Identifier: Apache-2.0
// Monotonic time, CPU time and the date, the only clocks the project reads.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace kvgauge {

// Monotonic seconds since an arbitrary start.
double NowSeconds();
// CPU seconds of the calling thread.
double ThreadCpuSeconds();
// The date, for records: "2026-01-02T03:04:05Z". Nothing is computed from it.
std::string UtcNow();

// CPU seconds: used by this process, and by everything on some processors (0 where /proc is
// absent).
struct CpuUse {
  double process_s = 0;
  double machine_s = 0;
};
// `processors`: those that count as the machine, by number (AllowedProcessors); empty: all.
CpuUse ReadCpuUse(std::span<const int> processors = {});

// Share of these processors that other processes used between two readings, 0..1. Timings taken
// while it is large are contended and say nothing.
double OthersShare(const CpuUse& before, const CpuUse& after, double wall_s, int processors);

}  // namespace kvgauge
