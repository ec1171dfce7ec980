// SPDX-License-Identifier: Apache-2.0
#include "cuda/device/simt.h"
#include "cuda/kv_keep_kernels.h"
#include "cuda/page_element.h"

namespace kvgauge::cuda {
namespace {

constexpr int kThreads = 256;

// KvKept.
constexpr int kRefused = 0, kEntry = 1, kBefore = 2, kLength = 3, kMerged = 4;

KVG_DEVICE bool IsRefused(const KeepView& view) { return view.outcome[kRefused] != 0; }

// The first i of [0, n) for which index[i] - i is at least `gone`. It never falls, where index
// ascends.
KVG_DEVICE int64_t FirstBehind(const KeepView& view, int64_t gone) {
  int64_t low = 0, high = view.n;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (view.index[middle] - middle >= gone) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// How many of index are less than `entry`.
KVG_DEVICE int64_t PlaceOf(const KeepView& view, int32_t entry) {
  int64_t low = 0, high = view.n;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (view.index[middle] < entry) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// A block for each head: whether the plan is one, and what merges where.
KVG_KERNEL(kThreads) CheckKernel(const KeepView* views) {
  KVG_SHARED(int32_t, found, 3);  // the first entry that is wrong; entries that merge
  const KeepView& view = views[BlockX()];
  if (IsRefused(view)) return;
  if (Thread() == 0) {
    found[0] = static_cast<int32_t>(view.n);
    found[1] = found[2] = 0;
  }
  SyncBlock();
  for (int64_t i = Thread(); i < view.n; i += kThreads) {
    const int32_t before = i == 0 ? -1 : view.index[i - 1];
    if (view.index[i] > before && view.index[i] < view.length) continue;
    AtomicMin(found, static_cast<int32_t>(i));
  }
  SyncBlock();
  const int32_t wrong = found[0];
  if (wrong < view.n) {
    if (Thread() == 0) {
      view.outcome[kRefused] = 1;
      view.outcome[kEntry] = view.index[wrong];
      view.outcome[kBefore] = wrong == 0 ? -1 : view.index[wrong - 1];
      view.outcome[kLength] = static_cast<int32_t>(view.length);
    }
    return;
  }
  for (int side = 0; side < 2; ++side) {
    const MergeView& merge = view.merges[side];
    for (int j = Thread(); j < merge.n * merge.spread; j += kThreads) {
      const int step = j / merge.n;
      int32_t target = merge.to[j % merge.n];
      if (target >= 0 && step == 0) AtomicAdd(found + 1 + side, 1);
      if (target >= 0 && step > 0) {
        const int64_t at = PlaceOf(view, target) + step;
        target = at < view.n ? view.index[at] : -1;
      }
      merge.targets[j] = target;
    }
  }
  SyncBlock();
  for (int side = 0; side < 2; ++side) {
    const MergeView& merge = view.merges[side];
    for (int j = Thread(); j < merge.n * merge.spread; j += kThreads) {
      int owner = 0;
      while (merge.targets[owner] != merge.targets[j]) ++owner;
      merge.owners[j] = owner;
    }
  }
  if (Thread() == 0) view.outcome[kMerged] += Most(found[1], found[2]);
}

template <class T>
KVG_DEVICE T& NumberAt(const PageLayout& layout, bool keys, void* const* pages, int64_t slot,
                       int dim) {
  const int at = static_cast<int>(slot % kPageEntries);
  return static_cast<T*>(
      pages[slot / kPageEntries])[keys ? layout.KeyIndex(at, dim) : layout.ValueIndex(at, dim)];
}

KVG_DEVICE float Load(const PageLayout& layout, bool keys, void* const* pages, int64_t slot,
                      int dim) {
  const int at = static_cast<int>(slot % kPageEntries);
  return PageElement(layout.dtype, pages[slot / kPageEntries],
                     keys ? layout.KeyIndex(at, dim) : layout.ValueIndex(at, dim));
}

KVG_DEVICE void Store(const PageLayout& layout, bool keys, void* const* pages, int64_t slot,
                      int dim, float value) {
  if (layout.wide()) {
    NumberAt<float>(layout, keys, pages, slot, dim) = value;
  } else {
    NumberAt<uint16_t>(layout, keys, pages, slot, dim) =
        layout.dtype == DType::kF16 ? FloatToHalf(value) : FloatToBf16(value);
  }
}

// A thread for each dim, over the whole list: sums have its order.
KVG_KERNEL(kThreads) MergeKernel(PageLayout layout, const KeepView* views) {
  const KeepView& view = views[BlockY()];
  const int side = static_cast<int>(BlockZ());
  const bool keys = side == 0;
  const MergeView& merge = view.merges[side];
  const int dim = keys ? layout.key_dim : layout.value_dim;
  const int64_t d = BlockX() * kThreads + Thread();
  if (IsRefused(view) || d >= dim) return;
  const int at = static_cast<int>(d);
  void* const* const pages = view.pages[side];
  const int targets = merge.n * merge.spread;
  for (int j = 0; j < targets; ++j) {
    const int32_t target = merge.targets[j];
    if (target < 0) continue;
    float* const sum = merge.sums + int64_t{merge.owners[j]} * dim + d;
    if (merge.owners[j] == j) {
      *sum = Load(layout, keys, pages, view.first + target, at);
      if (merge.self != nullptr) *sum *= merge.self[target];
    }
    const int i = j % merge.n;
    *sum += merge.weight[i] * Load(layout, keys, pages, view.first + merge.from[i], at);
  }
  for (int j = 0; j < targets; ++j) {
    if (merge.targets[j] < 0 || merge.owners[j] != j) continue;
    Store(layout, keys, pages, view.first + merge.targets[j], at, merge.sums[int64_t{j} * dim + d]);
  }
}

// A dim's numbers never meet those of another, so a block owns some dims and takes a stretch of
// entries at a time: all are read before any is written, and later ones are only read from where
// nothing was written yet.
constexpr int kDims = 16, kStretch = 256;

KVG_KERNEL(kThreads) MoveKernel(PageLayout layout, const KeepView* views) {
  KVG_SHARED(uint32_t, held, kDims * kStretch);
  const KeepView& view = views[BlockY()];
  const bool keys = BlockZ() == 0;
  void* const* const pages = view.pages[BlockZ()];
  const int d0 = static_cast<int>(BlockX()) * kDims;
  const int dims = Least(kDims, (keys ? layout.key_dim : layout.value_dim) - d0);
  if (IsRefused(view) || pages == nullptr || dims <= 0) return;
  const int64_t gone = view.length - view.n;
  // Entries [begin, end) of index move: down to the end, or up to the first that is where it will
  // be.
  const int64_t begin = view.up ? 0 : FirstBehind(view, 1);
  const int64_t end = view.up ? FirstBehind(view, gone) : view.n;
  const int64_t to = view.first + (view.up ? gone : 0);
  for (int64_t done = 0; done < end - begin; done += kStretch) {
    const int count = static_cast<int>(Least<int64_t>(kStretch, end - begin - done));
    const int64_t from = view.up ? end - done - count : begin + done;
    for (int i = Thread(); i < count * dims; i += kThreads) {
      const int64_t slot = view.first + view.index[from + i % count];
      const int d = d0 + i / count;
      held[i] = layout.wide() ? NumberAt<uint32_t>(layout, keys, pages, slot, d)
                              : NumberAt<uint16_t>(layout, keys, pages, slot, d);
    }
    SyncBlock();
    for (int i = Thread(); i < count * dims; i += kThreads) {
      const int64_t slot = to + from + i % count;
      const int d = d0 + i / count;
      if (layout.wide()) {
        NumberAt<uint32_t>(layout, keys, pages, slot, d) = held[i];
      } else {
        NumberAt<uint16_t>(layout, keys, pages, slot, d) = static_cast<uint16_t>(held[i]);
      }
    }
    SyncBlock();
  }
  if (view.up) return;
  const int64_t last = view.first + view.n;
  const int64_t zeros =
      Least(RoundUp(last, int64_t{kPageEntries}), view.first + view.length) - last;
  for (int64_t i = Thread(); i < zeros * dims; i += kThreads) {
    const int d = d0 + static_cast<int>(i / zeros);
    if (layout.wide()) {
      NumberAt<uint32_t>(layout, keys, pages, last + i % zeros, d) = 0;
    } else {
      NumberAt<uint16_t>(layout, keys, pages, last + i % zeros, d) = 0;
    }
  }
}

constexpr int kNumbers = 1024;

// A block for each array of a head.
KVG_KERNEL(kThreads) NumbersKernel(const KeepView* views) {
  KVG_SHARED(uint32_t, held, kNumbers);
  const KeepView& view = views[BlockY()];
  uint32_t* const numbers = view.numbers[BlockX()];
  if (IsRefused(view) || numbers == nullptr) return;
  for (int64_t begin = FirstBehind(view, 1); begin < view.n; begin += kNumbers) {
    const int count = static_cast<int>(Least<int64_t>(kNumbers, view.n - begin));
    for (int i = Thread(); i < count; i += kThreads) held[i] = numbers[view.index[begin + i]];
    SyncBlock();
    for (int i = Thread(); i < count; i += kThreads) numbers[begin + i] = held[i];
    SyncBlock();
  }
}

}  // namespace

void KeepEntries(const PageLayout& layout, const KeepWork& work, const KeepView* views,
                 Stream stream) {
  KVG_LAUNCH(CheckKernel, {.grid_x = work.heads, .threads = kThreads}, stream, views);
  const int dim = Most(layout.key_dim, layout.value_dim);
  const LaunchShape merge = {
      .grid_x = CeilDiv(dim, kThreads), .grid_y = work.heads, .grid_z = 2, .threads = kThreads};
  if (work.merges) KVG_LAUNCH(MergeKernel, merge, stream, layout, views);
  const LaunchShape move = {
      .grid_x = CeilDiv(dim, kDims), .grid_y = work.heads, .grid_z = 2, .threads = kThreads};
  if (work.moves) KVG_LAUNCH(MoveKernel, move, stream, layout, views);
  const LaunchShape numbers = {
      .grid_x = KeepView::kMostNumbers, .grid_y = work.heads, .threads = kThreads};
  if (work.numbers) KVG_LAUNCH(NumbersKernel, numbers, stream, views);
}

}  // namespace kvgauge::cuda
