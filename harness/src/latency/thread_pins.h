// SPDX-License-Identifier: Apache-2.0
// Binds the threads of this process to processors, one each, for as long as the object lives.
#pragma once

#include <sys/types.h>

#include <map>
#include <vector>

namespace kvgauge {

class ThreadPins {
 public:
  // `processors`: where threads may go (AllowedProcessors of the main thread). Not empty.
  explicit ThreadPins(std::vector<int> processors);
  // Every thread may go anywhere among them again.
  ~ThreadPins();
  ThreadPins(const ThreadPins&) = delete;
  ThreadPins& operator=(const ThreadPins&) = delete;

  // Binds the threads that are there now, in the order in which they were made. Threads made later
  // begin where their maker is bound: call it again.
  void Pin();

 private:
  std::vector<int> processors_;
  std::map<pid_t, int> bound_;  // thread -> processor
};

}  // namespace kvgauge
