// SPDX-License-Identifier: Apache-2.0
#include "src/run/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace kvgauge {
namespace {

std::atomic<int> came = 0;  // the only thing a handler may touch
static_assert(std::atomic<int>::is_always_lock_free);

void OnSignal(int number) {
  if (came.exchange(number) != 0) _exit(128 + number);
}

void Install(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  came = 0;
  Install(OnSignal);
}

InterruptGuard::~InterruptGuard() { Install(SIG_DFL); }

int InterruptGuard::signal() const { return came; }

}  // namespace kvgauge
