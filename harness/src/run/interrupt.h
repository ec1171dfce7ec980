// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and SIGTERM while a run goes on: the first asks it to finish what it began and says so at
// once, the second leaves at once with 128 + signal. Everything recorded is in the file either way.
#pragma once

namespace kvgauge {

enum class InterruptOf {
  kRun,     // finishes the samples that it has begun
  kWorker,  // of a run that another process leads and interrupts (SIGTERM). It says nothing, and
            // Ctrl-C, which a terminal sends to both, is the other one's
  kBench,   // gives up what it is measuring
};

// Handlers are in place while it lives. One at a time.
class InterruptGuard {
 public:
  explicit InterruptGuard(InterruptOf whose);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The signal that came, 0 for none. Any thread.
  int signal() const;
};

}  // namespace kvgauge
