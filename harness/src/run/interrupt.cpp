// SPDX-License-Identifier: Apache-2.0
#include "src/run/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

namespace kvgauge {
namespace {

// A handler may touch these and call write and _exit, nothing else.
std::atomic<int> came = 0;
std::atomic<bool> live_line =
    false;  // standard error is a terminal: a line may be unfinished there
std::atomic<InterruptOf> interrupted = InterruptOf::kRun;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
              std::atomic<InterruptOf>::is_always_lock_free);

// What cannot be said is no reason to stop otherwise.
template <size_t N>
void Say(const char (&text)[N]) {
  const int error = errno;
  const size_t begin = live_line ? 0 : 1;
  if (write(STDERR_FILENO, text + begin, N - 1 - begin) < 0) errno = 0;
  errno = error;
}

void OnSignal(int number) {
  if (came.exchange(number) != 0) _exit(128 + number);
  switch (interrupted) {
    case InterruptOf::kRun:
      return Say(
          "\nstopping: samples that are running are finished first; once more leaves at once\n");
    case InterruptOf::kBench:
      return Say("\nstopping: what is being measured is given up; once more leaves at once\n");
    case InterruptOf::kWorker:
      return;
  }
}

void Install(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard(InterruptOf whose) {
  came = 0;
  interrupted = whose;
  live_line = isatty(STDERR_FILENO) == 1;
  Install(OnSignal);
  if (whose == InterruptOf::kWorker) std::signal(SIGINT, SIG_IGN);
}

InterruptGuard::~InterruptGuard() { Install(SIG_DFL); }

int InterruptGuard::signal() const { return came; }

}  // namespace kvgauge
