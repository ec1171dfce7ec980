// SPDX-License-Identifier: Apache-2.0
#include "cuda/device/simt.h"
#include "cuda/page_element.h"
#include "cuda/pages_kernels.h"

namespace kvgauge::cuda {
namespace {

constexpr int kThreads = 256;

KVG_DEVICE void StoreElement(DType dtype, void* page, int index, float value) {
  switch (dtype) {
    case DType::kF16:
      static_cast<uint16_t*>(page)[index] = FloatToHalf(value);
      return;
    case DType::kBF16:
      static_cast<uint16_t*>(page)[index] = FloatToBf16(value);
      return;
    default:
      static_cast<float*>(page)[index] = value;
  }
}

KVG_KERNEL(kThreads)
WriteKernel(PageLayout layout, bool keys, RowsView rows, int64_t n, int dim,
            const WriteTarget* targets) {
  const WriteTarget target = targets[BlockY()];
  const int64_t at = BlockX() * kThreads + Thread();
  if (at >= n * dim) return;
  const int64_t i = at / dim;
  const int d = static_cast<int>(at % dim);
  const int64_t entry = target.first_entry + i;
  // `pages` begins with the page of the first entry.
  void* const page = target.pages[entry / kPageEntries - target.first_entry / kPageEntries];
  const int slot = static_cast<int>(entry % kPageEntries);
  StoreElement(layout.dtype, page, keys ? layout.KeyIndex(slot, d) : layout.ValueIndex(slot, d),
               rows.data[i * rows.stride + BlockY() * rows.head_stride + d]);
}

KVG_KERNEL(kThreads)
ReadKernel(PageLayout layout, bool keys, void* const* pages, const int32_t* index, int64_t first,
           RowsView rows, int64_t n, int dim) {
  const int64_t at = BlockX() * kThreads + Thread();
  if (at >= n * dim) return;
  const int64_t i = at / dim;
  const int d = static_cast<int>(at % dim);
  const int64_t entry = index != nullptr ? index[i] : first + i;
  const int slot = static_cast<int>(entry % kPageEntries);
  rows.data[i * rows.stride + d] =
      PageElement(layout.dtype, pages[entry / kPageEntries],
                  keys ? layout.KeyIndex(slot, d) : layout.ValueIndex(slot, d));
}

template <class T>
KVG_DEVICE void CopyOne(const PageLayout& layout, bool keys, void* const* from, int64_t in,
                        void* const* to, int64_t out, int dim) {
  const int a = static_cast<int>(in % kPageEntries), b = static_cast<int>(out % kPageEntries);
  static_cast<T*>(
      to[out / kPageEntries])[keys ? layout.KeyIndex(b, dim) : layout.ValueIndex(b, dim)] =
      static_cast<const T*>(
          from[in / kPageEntries])[keys ? layout.KeyIndex(a, dim) : layout.ValueIndex(a, dim)];
}

KVG_KERNEL(kThreads)
CopyKernel(PageLayout layout, bool keys, void* const* from, const int32_t* index, int64_t n,
           int dim, void* const* to, int64_t first) {
  const int64_t at = BlockX() * kThreads + Thread();
  if (at >= n * dim) return;
  // Neighbouring threads take neighbouring entries of a pair of dims: what lies together in a page.
  const int64_t i = at % n;
  const int d = static_cast<int>(at / n);
  if (layout.wide()) {
    CopyOne<uint32_t>(layout, keys, from, index[i], to, first + i, d);
  } else {
    CopyOne<uint16_t>(layout, keys, from, index[i], to, first + i, d);
  }
}

// Entries move down within their own pages. A dim's numbers never meet those of another, so a block
// owns some dims and takes 64 entries at a time: all are read before any is written, and later ones
// are only read from where nothing was written yet, for index ascends.
constexpr int kDimsInPlace = 16;

KVG_KERNEL(kThreads)
CompactKernel(PageLayout layout, bool keys, void* const* from, const int32_t* index, int64_t n,
              int dim, void* const* to, int64_t first) {
  KVG_SHARED(uint32_t, held, kDimsInPlace * kPageEntries);
  const int d0 = static_cast<int>(BlockX()) * kDimsInPlace;
  const int dims = Least(kDimsInPlace, dim - d0);
  for (int64_t begin = 0; begin < n; begin += kPageEntries) {
    const int count = static_cast<int>(Least<int64_t>(kPageEntries, n - begin));
    for (int i = Thread(); i < count * dims; i += kThreads) {
      const int64_t in = index[begin + i % count];
      const int slot = static_cast<int>(in % kPageEntries), d = d0 + i / count;
      const int at = keys ? layout.KeyIndex(slot, d) : layout.ValueIndex(slot, d);
      const void* const page = from[in / kPageEntries];
      held[i] = layout.wide() ? static_cast<const uint32_t*>(page)[at]
                              : static_cast<const uint16_t*>(page)[at];
    }
    SyncBlock();
    for (int i = Thread(); i < count * dims; i += kThreads) {
      const int64_t out = first + begin + i % count;
      const int slot = static_cast<int>(out % kPageEntries), d = d0 + i / count;
      const int at = keys ? layout.KeyIndex(slot, d) : layout.ValueIndex(slot, d);
      void* const page = to[out / kPageEntries];
      if (layout.wide()) {
        static_cast<uint32_t*>(page)[at] = held[i];
      } else {
        static_cast<uint16_t*>(page)[at] = static_cast<uint16_t>(held[i]);
      }
    }
    SyncBlock();
  }
}

KVG_KERNEL(kThreads) SmallCopyKernel(const SmallCopy* copies, int64_t count) {
  const int64_t i = BlockX() * kThreads + Thread();
  if (i >= count) return;
  const SmallCopy copy = copies[i];
  for (int64_t k = 0; k < copy.count; ++k) copy.to[k] = copy.from[k];
}

int DimOf(const PageLayout& layout, bool keys) { return keys ? layout.key_dim : layout.value_dim; }

}  // namespace

void WritePages(const PageLayout& layout, bool keys, const RowsView& rows, int64_t n, int64_t heads,
                const WriteTarget* targets, Stream stream) {
  const int dim = DimOf(layout, keys);
  constexpr int64_t kMostHeads = 65535;
  for (int64_t h = 0; h < heads; h += kMostHeads) {
    const LaunchShape shape = {.grid_x = CeilDiv(n * dim, kThreads),
                               .grid_y = Least(heads - h, kMostHeads),
                               .threads = kThreads};
    const RowsView some = {rows.data + h * rows.head_stride, rows.stride, rows.head_stride};
    KVG_LAUNCH(WriteKernel, shape, stream, layout, keys, some, n, dim, targets + h);
  }
}

void ReadPages(const PageLayout& layout, bool keys, void* const* pages, const int32_t* index,
               int64_t first, const RowsView& rows, int64_t n, Stream stream) {
  const int dim = DimOf(layout, keys);
  const LaunchShape shape = {.grid_x = CeilDiv(n * dim, kThreads), .threads = kThreads};
  KVG_LAUNCH(ReadKernel, shape, stream, layout, keys, pages, index, first, rows, n, dim);
}

void CopyPages(const PageLayout& layout, bool keys, void* const* from, const int32_t* index,
               int64_t n, void* const* to, int64_t first, bool in_place, Stream stream) {
  const int dim = DimOf(layout, keys);
  if (in_place) {
    const LaunchShape shape = {.grid_x = CeilDiv(dim, kDimsInPlace), .threads = kThreads};
    KVG_LAUNCH(CompactKernel, shape, stream, layout, keys, from, index, n, dim, to, first);
    return;
  }
  const LaunchShape shape = {.grid_x = CeilDiv(n * dim, kThreads), .threads = kThreads};
  KVG_LAUNCH(CopyKernel, shape, stream, layout, keys, from, index, n, dim, to, first);
}

void CopySmall(const SmallCopy* copies, int64_t count, Stream stream) {
  KVG_LAUNCH(SmallCopyKernel, {.grid_x = CeilDiv(count, kThreads), .threads = kThreads}, stream,
             copies, count);
}

}  // namespace kvgauge::cuda
