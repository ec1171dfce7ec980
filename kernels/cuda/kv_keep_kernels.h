// SPDX-License-Identifier: Apache-2.0
// Launches of KeepKv. Pointers are device memory.
#pragma once

#include "cuda/device/driver.h"
#include "cuda/page_layout.h"

namespace kvgauge::cuda {

// KvMerge. Target j = step * n + i is what entry from[i] is added to as the step-th; of those that
// are the same entry the first one is the owner of their sum.
struct MergeView {
  const int32_t* from;
  const int32_t* to;
  const float* weight;
  const float* self;  // or null
  int n, spread;
  // [n * spread]
  int32_t* targets;
  int32_t* owners;
  float* sums;  // [n * spread, dim]
};
// KvKeep.
struct KeepView {
  static constexpr int kMostNumbers = 5;

  const int32_t* index;
  int64_t n, length, first;
  bool up;
  void* const* pages[2];  // keys, values
  MergeView merges[2];
  uint32_t* numbers[kMostNumbers];
  int32_t* outcome;
};

// Which launches there is something for.
struct KeepWork {
  int64_t heads = 0;
  bool merges = false, moves = false, numbers = false;
};
void KeepEntries(const PageLayout& layout, const KeepWork& work, const KeepView* views,
                 Stream stream);

}  // namespace kvgauge::cuda
