// SPDX-License-Identifier: Apache-2.0
// Rotation of cached keys: at once, or when attention reads them.
#pragma once

#include <memory>
#include <mutex>
#include <span>

#include "kernels/ops.h"
#include "runner/rope.h"

namespace kvgauge {

// Cosines and then sines, [2, positions, pairs] f32, times `factor`; they lie in `memory`.
// positions: [n] i32, on the host or the device.
Tensor MakeRotations(Ops& ops, const RopeFrequencies& frequencies, double factor,
                     const Tensor& positions, Buffer* memory);
// Turns rows [n, d] f32 of entries at these positions in place; kInverse undoes kForward.
void RotateRows(Ops& ops, const RopeFrequencies& frequencies, RopeLayout layout,
                RopeDirection direction, const Tensor& positions, Tensor rows);

// Angles of positions [0, capacity). Immutable, shared by forks.
class RopeTables {
 public:
  RopeTables(Ops& ops, const RopeFrequencies& frequencies, RopeLayout layout, int64_t capacity);

  int64_t capacity() const { return capacity_; }
  const DeferredRope& rope() const { return rope_; }
  // 0, 1, 2 .. behind a page of zeros, for slots that are skipped.
  const int32_t* every_position() const {
    return static_cast<const int32_t*>(every_.data()) + kKvPageEntries;
  }

 private:
  int64_t capacity_;
  Buffer memory_, every_;
  DeferredRope rope_;
};

// The newest tables any fork made. Forks may run side by side.
struct RopeTablesHolder {
  std::mutex mutex;  // of what follows
  std::shared_ptr<const RopeTables> newest;
};

}  // namespace kvgauge
