// SPDX-License-Identifier: Apache-2.0
// What the workers of one run share: which of them runs which sample, and how far they are. It is a
// memory file that each worker inherits open and that goes with the last of them.
//
// Samples are claimed one by one, so that a worker whose samples are short takes more of them. What
// a worker that died had claimed is run by nobody: it stays open in the database.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "src/run/run_counters.h"

namespace kvgauge {

// How many of so many processors worker `index` takes: none is left over, and none is given twice
// unless there are fewer than workers.
int ProcessorsOf(int64_t index, int64_t workers, int processors);

class SharedWork {
 public:
  static constexpr int64_t kMostGroups = 1 << 16;
  static constexpr int64_t kMostWorkers = 64;
  // A device with less free memory than this share of another's has much less.
  static constexpr double kMuchLess = 0.9;

  // By the process that leads the run: a worker for each device, kMostWorkers at most. `resumed`:
  // the database holds an earlier call of the run.
  static Result<std::unique_ptr<SharedWork>> Create(const std::vector<int>& devices, bool resumed);
  // What a word of Word() names, in a worker.
  static Result<std::unique_ptr<SharedWork>> Join(const std::string& word);
  ~SharedWork();
  SharedWork(const SharedWork&) = delete;
  SharedWork& operator=(const SharedWork&) = delete;

  // How worker `index` is told on its command line where this is; its file descriptor is inherited.
  // Precondition: this is the one that was created.
  std::string Word(int64_t index) const;

  int64_t workers() const;
  int64_t index() const { return worker_; }  // of this worker, from 0
  int device() const;                        // of this worker
  bool resumed() const;
  RunCounters& counters() const;

  // From here on this worker is killed when the process that leads it ends; an error where that
  // has ended already.
  Status EndWithLeader() const;

  // The position of the next sample of a group of the plan that nobody has claimed. Each is given
  // once, in ascending order.
  int64_t Claim(int64_t group);
  // How many samples of a group may be claimed together, `position` being the first of them and
  // `count` the samples of the group (-1: unknown): fewer towards the end, so that the workers end
  // together.
  int64_t Together(int64_t position, int64_t count) const;

  // A sample that needs more memory than this worker's device has is left open where another device
  // has much more, of no more than `limit_bytes` (0: any number); false where none has. Waits a
  // while for workers that have not begun.
  bool LeaveToAnother(int64_t limit_bytes);
  // Whether that was done, and the device that has most.
  bool left() const;
  int roomiest() const;

  // What a worker knows when it begins, for the one that shows it: samples and cells to come of all
  // groups (-1: unknown), and what is free on its device.
  void Begin(int64_t samples, int64_t cells, int64_t free_bytes);
  struct Known {
    int64_t began = 0;  // workers
    int64_t samples = -1, cells = -1;
    std::vector<int64_t> free_bytes;  // of each worker; 0: unknown or not yet
  };
  Known known() const;

 private:
  struct Shared;
  SharedWork(int file, Shared* shared, int64_t worker)
      : file_(file), shared_(shared), worker_(worker) {}
  static Result<Shared*> Map(int file);

  int file_;  // -1: the one that a worker has inherited, which it needs no more
  Shared* shared_;
  int64_t worker_;
  double began_s_ = 0;
};

}  // namespace kvgauge
