// SPDX-License-Identifier: Apache-2.0
#include "src/latency/thread_pins.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <span>

#include "core/check.h"

namespace kvgauge {
namespace {

// A thread that has ended meanwhile is no fault.
void Bind(pid_t thread, std::span<const int> processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int number : processors) CPU_SET(number, &set);
  sched_setaffinity(thread, sizeof(set), &set);
}

// Linux numbers threads in the order in which they are made.
std::set<pid_t> Threads() {
  std::set<pid_t> threads;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
    threads.insert(std::atoi(entry.path().filename().c_str()));
  }
  return threads;
}

}  // namespace

ThreadPins::ThreadPins(std::vector<int> processors) : processors_(std::move(processors)) {
  KVG_CHECK(!processors_.empty(), "threads need a processor");
}

ThreadPins::~ThreadPins() {
  for (const pid_t thread : Threads()) Bind(thread, processors_);
}

void ThreadPins::Pin() {
  for (const pid_t thread : Threads()) {
    if (bound_.contains(thread)) continue;
    const int processor = processors_[bound_.size() % processors_.size()];
    bound_.emplace(thread, processor);
    Bind(thread, {&processor, 1});
  }
}

}  // namespace kvgauge
