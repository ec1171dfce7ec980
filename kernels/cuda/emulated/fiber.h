// SPDX-License-Identifier: Apache-2.0
// Threads of execution that hand the processor to each other. A fiber stays on the OS thread that
// started it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvgauge::cuda::emulated {

// One of each OS thread is its own, never started: the scheduler.
struct Fiber {
  void* context = nullptr;      // where it stopped
  void* fake_stack = nullptr;   // the address sanitizer's
  const void* stack = nullptr;  // lowest address
  size_t stack_bytes = 0;
};

// `entry` runs at the first switch to the fiber, on stack number `slot` of this OS thread, and ends
// in LeaveFiber.
void StartFiber(Fiber& fiber, int slot, void (*entry)());
void SwitchFiber(Fiber& from, Fiber& to);
[[noreturn]] void LeaveFiber(Fiber& from, Fiber& to);

}  // namespace kvgauge::cuda::emulated
