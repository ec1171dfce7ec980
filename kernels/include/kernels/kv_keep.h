// SPDX-License-Identifier: Apache-2.0
// Device-side eviction of uncoded entries. The host knows only how many entries each head keeps,
// not which.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/tensor.h"

namespace kvgauge {

// The new values of entries that stay, from all entries as they were before:
// x[to[i]] = self[to[i]] * x[to[i]] + sum over i, ascending, of weight[i] * x[from[i]], in f32,
// rounded once. With `spread` the same is added to the spread - 1 kept entries behind to[i], as far
// as there are that many; then to a second one of each list, and so on.
struct KvMerge {
  Tensor from, to;     // [n] i32 entries; to[i] stays, or is -1: skipped
  Tensor weight;       // [n] f32
  Tensor self;         // [length] f32, or empty: 1
  int64_t spread = 1;  // at least 1

  int64_t count() const { return from.empty() ? 0 : from.shape[0]; }
};

// One head. Entry e lies in slot `first` + e of its pages, 64 slots a page.
struct KvKeep {
  static constexpr int kMostNumbers = 5;

  Tensor index;        // [n] i32: the entries that stay, ascending
  int64_t length = 0;  // entries before
  int64_t first = 0;
  // Entries before an evicted one move up: entry 0 is in slot first + length - n afterwards, and
  // the content of slots before it is undefined. Otherwise entries behind an evicted one move down,
  // and slots behind the last entry, to the end of its page, become zero.
  bool up = false;
  void* const* key_pages = nullptr;    // null: none
  void* const* value_pages = nullptr;  // null: none
  KvMerge keys, values;
  // [length] of 4 bytes each, contiguous, or empty: an entry's numbers. Those of the entries that
  // stay come to the front.
  std::array<Tensor, kMostNumbers> numbers;
};

// The outcome of one head: a row of i32 numbers.
enum class KvKept {
  kRefused,  // 1: `index` does not ascend or names what is not held; nothing moved, nor will again
  kEntry,    // which entry that was
  kBefore,   // the one before it in `index`, or -1
  kLength,   // of how many
  kMerged,   // entries that went to others; adds up: of keys or values, whichever are more
};
inline constexpr int64_t kKvKeptNumbers = 5;

}  // namespace kvgauge
