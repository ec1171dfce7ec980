// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.h"
#include "kernels/ops.h"

namespace kvgauge {

// Seconds of a stretch of work. Device work is waited for, and so included, after a prefill; in a
// decode step it is not: there it counts with the rest of the step.
enum class During { kPrompt, kStep };
class Stopwatch {
 public:
  Stopwatch(Ops& ops, double& seconds, During during = During::kPrompt)
      : ops_(ops), seconds_(seconds), waits_(during == During::kPrompt), start_s_(NowSeconds()) {}
  ~Stopwatch() {
    if (waits_) ops_.memory->Synchronize();
    seconds_ += NowSeconds() - start_s_;
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  Ops& ops_;
  double& seconds_;
  const bool waits_;
  double start_s_;
};

}  // namespace kvgauge
