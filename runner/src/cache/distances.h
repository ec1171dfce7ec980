// SPDX-License-Identifier: Apache-2.0
// ALiBi: what a query head's scores gain by where an entry is. It is the head's slope times the
// entry's position, so that every row, in whatever chunk or company, gets the same bits. Numbers
// are f32: at position p they are exact to slope * p * 2^-24.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops.h"

namespace kvgauge {

// slope * position for every query head and the positions [0, capacity). Immutable, shared by a
// cache and its forks.
class DistanceTable {
 public:
  // `rounded_scale` above 0: slopes, positions and products are rounded to bf16, and the products
  // multiplied by it.
  DistanceTable(Ops& ops, std::span<const float> slopes, float rounded_scale, int64_t capacity);

  int64_t capacity() const { return capacity_; }
  // The numbers of one query head, [capacity] f32.
  Tensor Of(int64_t query_head) const {
    return memory_.As(DType::kF32, {heads_, capacity_})[query_head];
  }
  // The same at positions [n] i32 on the device. out: [n].
  void At(Ops& ops, int64_t query_head, const Tensor& positions, const Tensor& out) const;

 private:
  int64_t heads_, capacity_;
  Buffer memory_;
};

}  // namespace kvgauge
