// SPDX-License-Identifier: Apache-2.0
// The launch that copies whole pages, to and from memory of the host among others.
#pragma once

#include <cstdint>

#include "cuda/device/driver.h"

namespace kvgauge::cuda {

// Both 16-byte aligned, as is the size. With `read`, nothing is copied unless one of the query
// heads reads an entry of the page: bits [group] of 64 entries a word.
struct PageCopy {
  const void* from;
  void* to;
  int64_t size_bytes;
  const uint64_t* const* read;  // null: the page is copied
  int page, group;
};

// Blocks of CopyWholePages, and their threads. A bus takes the loads of a few of them to be busy,
// and the rest of the device has other things to do.
inline constexpr int kFewBlocks = 32, kManyBlocks = 1024;

void CopyWholePages(const PageCopy* copies, int64_t count, int most_blocks, Stream stream);

}  // namespace kvgauge::cuda
