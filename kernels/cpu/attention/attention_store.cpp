// SPDX-License-Identifier: Apache-2.0
// Attention on the cpu beside Attend: entries in and out of pages, and the kernels of each
// instruction set.
#include "cpu/attention/attention_schedule.h"
#include "cpu/cpu.h"
#include "cpu/split_work.h"

namespace kvgauge {
namespace attention_schedule {

void CpuAttention::DoWriteKv(const KvFormat& format, const Tensor& keys, const Tensor& values,
                             std::span<const KvTarget> heads) {
  const PageLayout layout(format);
  const int64_t n = (keys.empty() ? values : keys).shape[0], kv_heads = std::ssize(heads);
  // Targets may start anywhere in a page, so some meet one page fewer.
  const int64_t pages = (n + kEntries - 2) / kEntries + 1;
  const int64_t volume = n * kv_heads * (format.key_dim + format.value_dim);
  const int workers = Movers(volume);
  RunsFor(workers, pages * kv_heads, [&](int64_t u) {
    const int64_t h = u / pages, first_entry = heads[h].first_entry;
    const int64_t p = first_entry / kEntries + u % pages;
    const int64_t from = std::max(first_entry, p * kEntries);
    const int64_t to = std::min(first_entry + n, (p + 1) * kEntries);
    if (from >= to) return;
    const int begin = static_cast<int>(from - p * kEntries);
    const int end = static_cast<int>(to - p * kEntries);
    const int64_t row = from - first_entry;
    if (!keys.empty()) {
      WriteKeys(kernels_, layout, keys.f32() + row * keys.stride[0] + h * keys.stride[1],
                keys.stride[0], begin, end, heads[h].key_pages[p]);
    }
    if (!values.empty()) {
      WriteValues(kernels_, layout, values.f32() + row * values.stride[0] + h * values.stride[1],
                  values.stride[0], begin, end, heads[h].value_pages[p]);
    }
  });
}

void CpuAttention::DoCopyKv(const KvFormat& format, const KvSegment& from, const Tensor& index,
                            const KvTarget& to) {
  const PageLayout layout(format);
  const int64_t n = index.shape[0], first_page = to.first_entry / kEntries;
  const int64_t pages = (to.first_entry + n - 1) / kEntries + 1 - first_page;
  // Entries that move down within their own pages are read before they are written, in order.
  const bool same = (to.key_pages != nullptr && to.key_pages == from.key_pages) ||
                    (to.value_pages != nullptr && to.value_pages == from.value_pages);
  const int workers = same ? 1 : Movers(n * (format.key_dim + format.value_dim));
  RunsFor(workers, pages, [&](int64_t i) {
    const int64_t p = first_page + i;
    const int64_t end = std::min(to.first_entry + n, (p + 1) * kEntries);
    for (int64_t entry = std::max(to.first_entry, p * kEntries); entry < end;) {
      // What comes from one page goes at once.
      const int32_t* source = index.i32() + (entry - to.first_entry);
      const int64_t page = source[0] / kEntries;
      const auto page_begin = static_cast<int32_t>(page * kEntries);
      uint8_t slots[kEntries];
      const auto most = static_cast<int>(end - entry);
      int count = 0;
      for (; count < most; ++count) {
        const auto slot = static_cast<uint32_t>(source[count] - page_begin);
        if (slot >= kEntries) break;
        slots[count] = static_cast<uint8_t>(slot);
      }
      const int target = static_cast<int>(entry % kEntries);
      if (to.key_pages != nullptr) {
        CopyKeys(layout, from.key_pages[page], slots, count, to.key_pages[p], target);
      }
      if (to.value_pages != nullptr) {
        CopyValues(layout, from.value_pages[page], slots, count, to.value_pages[p], target);
      }
      entry += count;
    }
  });
}

void CpuAttention::DoGatherKv(const KvFormat& format, const KvSegment& segment, const Tensor& index,
                              Tensor keys, Tensor values) {
  const PageLayout layout(format);
  const int64_t n = index.shape[0];
  for (int64_t i = 0, run = 0; i < n; i += run) {
    // Neighbours of one page are read at once.
    const int32_t first = index.i32()[i];
    const int64_t page = first / kEntries,
                  most = std::min<int64_t>(n - i, kEntries - first % kEntries);
    for (run = 1; run < most && index.i32()[i + run] == first + run; ++run) {
    }
    const int begin = static_cast<int>(first % kEntries), end = begin + static_cast<int>(run);
    if (!keys.empty()) {
      ReadKeys(kernels_, layout, segment.key_pages[page], begin, end,
               keys.f32() + i * keys.stride[0], keys.stride[0]);
    }
    if (!values.empty()) {
      ReadValues(kernels_, layout, segment.value_pages[page], begin, end,
                 values.f32() + i * values.stride[0], values.stride[0]);
    }
  }
}

void CpuAttention::DoReadKv(const KvFormat& format, const KvSegment& segment, int64_t first_entry,
                            Tensor keys, Tensor values) {
  const PageLayout layout(format);
  const int64_t n = (keys.empty() ? values : keys).shape[0], first_page = first_entry / kEntries;
  const int64_t end_page = (first_entry + n - 1) / kEntries + 1;
  const int workers = Movers(n * (format.key_dim + format.value_dim));
  RunsFor(workers, end_page - first_page, [&](int64_t i) {
    const int64_t p = first_page + i;
    const int64_t from = std::max(first_entry, p * kEntries);
    const int64_t to = std::min(first_entry + n, (p + 1) * kEntries), row = from - first_entry;
    const int begin = static_cast<int>(from - p * kEntries);
    const int end = static_cast<int>(to - p * kEntries);
    if (!keys.empty()) {
      ReadKeys(kernels_, layout, segment.key_pages[p], begin, end,
               keys.f32() + row * keys.stride[0], keys.stride[0]);
    }
    if (!values.empty()) {
      ReadValues(kernels_, layout, segment.value_pages[p], begin, end,
                 values.f32() + row * values.stride[0], values.stride[0]);
    }
  });
}

}  // namespace attention_schedule

const AttentionKernels& AttentionKernelsOf([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kAvx2:
      return Avx2AttentionKernels();
    case Isa::kAvx512:
      return Avx512AttentionKernels();
    case Isa::kAvx512Bf16:
      return Avx512Bf16AttentionKernels();
    case Isa::kAmx:
      return AmxAttentionKernels();
    case Isa::kPortable:
      break;
  }
#endif
  return PortableAttentionKernels();
}

std::unique_ptr<AttentionOps> MakeCpuAttention(Isa isa, ThreadSettings threads) {
  return std::make_unique<attention_schedule::CpuAttention>(AttentionKernelsOf(isa),
                                                            CodecKernelsOf(isa), threads);
}

}  // namespace kvgauge
