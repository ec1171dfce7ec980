// SPDX-License-Identifier: Apache-2.0
// One writer at a time: a lock on a neighbour file, which goes with the process that held it.
// SQLite's own locks are taken per transaction, so they would let two runs do the same work.
#pragma once

#include <memory>
#include <string>

#include "core/result.h"

namespace kvgauge {

class WriterLock {
 public:
  // Locks `real_path`.lock; the file itself is not touched. Does not wait. `path` is what messages
  // call it.
  static Result<std::unique_ptr<WriterLock>> Take(const std::string& path,
                                                  const std::string& real_path);
  ~WriterLock();
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  WriterLock(std::string lock_path, int fd) : lock_path_(std::move(lock_path)), fd_(fd) {}
  std::string lock_path_;
  int fd_;
};

}  // namespace kvgauge
