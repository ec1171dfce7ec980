// SPDX-License-Identifier: Apache-2.0
#include "src/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace kvgauge {
namespace {

volatile std::sig_atomic_t came = 0;

void OnSignal(int number) {
  if (came != 0) _exit(128 + number);
  came = number;
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
