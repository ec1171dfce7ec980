// SPDX-License-Identifier: Apache-2.0
// Launches that move entries to, from and between float pages. Pointers are device memory.
#pragma once

#include "cuda/device/driver.h"
#include "cuda/page_layout.h"

namespace kvgauge::cuda {

// One side of a write: the pages of entry first_entry / 64 and those after it, of one head.
struct WriteTarget {
  void* const* pages;
  int64_t first_entry;
};
struct RowsView {
  float* data;
  int64_t stride, head_stride;
};
// rows [n, heads, dim] to targets [heads].
void WritePages(const PageLayout& layout, bool keys, const RowsView& rows, int64_t n, int64_t heads,
                const WriteTarget* targets, Stream stream);
// Entries index[i], or first + i without an index, to rows [n, dim].
void ReadPages(const PageLayout& layout, bool keys, void* const* pages, const int32_t* index,
               int64_t first, const RowsView& rows, int64_t n, Stream stream);
// Entries index[i] of `from` become entries first + i of `to`; pages of one list only where no
// entry moves up, in ascending order.
void CopyPages(const PageLayout& layout, bool keys, void* const* from, const int32_t* index,
               int64_t n, void* const* to, int64_t first, bool in_place, Stream stream);

// A few numbers of 4 bytes each, and where they go.
struct SmallCopy {
  const uint32_t* from;
  uint32_t* to;
  int64_t count;
};
void CopySmall(const SmallCopy* copies, int64_t count, Stream stream);

}  // namespace kvgauge::cuda
