// SPDX-License-Identifier: Apache-2.0
// Rotation of cached keys: at once, or when attention reads them.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "kernels/ops.h"
#include "runner/rope.h"

namespace kvgauge {

// Cosines and then sines, [2, positions, pairs] f32, times `factor`; they lie in `memory`.
// positions: [n] i32, on the host or the device: all axes alike; or [n, 3] where frequencies have
// axes.
Tensor MakeRotations(Ops& ops, const RopeFrequencies& frequencies, double factor,
                     const Tensor& positions, Buffer* memory);
// The same in memory that is there, so many f32.
int64_t RotationNumbers(const RopeFrequencies& frequencies, const Tensor& positions);
Tensor MakeRotations(Ops& ops, const RopeFrequencies& frequencies, double factor,
                     const Tensor& positions, const Tensor& memory);
// Turns rows [n, d] f32 in place by the angles that MakeRotations gave.
void TurnRows(Ops& ops, const Tensor& rotations, RopeLayout layout, RopeDirection direction,
              Tensor rows);
// What angles that are turned back are made with, and others.
inline double RotationFactor(const RopeFrequencies& frequencies, RopeDirection direction) {
  return direction == RopeDirection::kForward ? frequencies.attention_factor
                                              : 1.0 / frequencies.attention_factor;
}
// Positions [n] of tokens, or of slots where `places` is null, as MakeRotations takes them:
// themselves, or [n, axes] in `memory`.
Tensor PlacedPositions(Ops& ops, const RopeFrequencies& frequencies, const RopePlaces* places,
                       const Tensor& positions, std::vector<int32_t>* memory);
// Turns rows [n, d] f32 of entries at these positions in place; kInverse undoes kForward.
void RotateRows(Ops& ops, const RopeFrequencies& frequencies, const RopePlaces* places,
                RopeLayout layout, RopeDirection direction, const Tensor& positions, Tensor rows);

// The same for the heads of a layer, one after the other: most stand at the positions of the one
// before, and turn by its angles.
class RowRotator {
 public:
  RowRotator(Ops& ops, const RopeFrequencies& frequencies, const RopePlaces* places,
             RopeLayout layout, RopeDirection direction)
      : ops_(ops),
        frequencies_(frequencies),
        places_(places),
        layout_(layout),
        direction_(direction) {}

  void Rotate(const Tensor& positions, Tensor rows);

 private:
  Ops& ops_;
  const RopeFrequencies& frequencies_;
  const RopePlaces* places_;
  RopeLayout layout_;
  RopeDirection direction_;
  std::vector<int32_t> turned_;  // positions of the tables, where the host can read them
  Buffer memory_;
  Tensor tables_;
};

// Angles of tokens [0, capacity) at `places`, or of numbers where that is null. Immutable, shared
// by caches.
class RopeTables {
 public:
  RopeTables(Ops& ops, const RopeFrequencies& frequencies, std::shared_ptr<const RopePlaces> places,
             RopeLayout layout, int64_t capacity);

  // Whether they turn as tables at these places would.
  bool TurnsBy(const RopeFrequencies& frequencies, const RopePlaces* places) const {
    return frequencies_ == frequencies &&
           (places == nullptr ? places_ == nullptr : places_ != nullptr && *places_ == *places);
  }

  int64_t capacity() const { return capacity_; }
  const DeferredRope& rope() const { return rope_; }
  // 0, 1, 2 .. behind a page of zeros, for slots that are skipped.
  const int32_t* every_position() const {
    return static_cast<const int32_t*>(every_.data()) + kKvPageEntries;
  }

 private:
  RopeFrequencies frequencies_;
  std::shared_ptr<const RopePlaces> places_;
  int64_t capacity_;
  Buffer memory_, every_;
  DeferredRope rope_;
};

// Tables that caches of one model turn their keys by, for as long as one does: sequences attend in
// one call where theirs are the same. Caches may ask side by side.
class RopeTablesStore {
 public:
  // Tables that reach `positions`; where they must be made, they reach `capacity`.
  std::shared_ptr<const RopeTables> Get(Ops& ops, const RopeFrequencies& frequencies,
                                        const std::shared_ptr<const RopePlaces>& places,
                                        RopeLayout layout, int64_t positions, int64_t capacity);

 private:
  std::mutex mutex_;  // of what follows
  std::vector<std::weak_ptr<const RopeTables>> held_;
};

}  // namespace kvgauge
