// SPDX-License-Identifier: Apache-2.0
// Attention on the cpu beside Attend: entries in and out of pages, merging of results, and the
// kernels of each instruction set.
#include <cmath>

#include "cpu/attention_schedule.h"
#include "cpu/cpu.h"

namespace kvgauge {
namespace attention_schedule {

void CpuAttention::DoMergeStates(const Tensor& out_b, const Tensor& lse_b, Tensor out_a,
                                 Tensor lse_a) {
  const int64_t dim = out_a.shape[1];
  for (int64_t i = 0; i < out_a.shape[0]; ++i) {
    float& a = lse_a.f32()[i * lse_a.stride[0]];
    const float b = lse_b.f32()[i * lse_b.stride[0]];
    if (b == kNothing) continue;
    float* values = out_a.f32() + i * out_a.stride[0];
    const float* other = out_b.f32() + i * out_b.stride[0];
    if (a == kNothing) {
      a = b;
      std::copy(other, other + dim, values);
      continue;
    }
    const double max = std::max(a, b);
    const double fall_a = std::exp(a - max), fall_b = std::exp(b - max), sum = fall_a + fall_b;
    const float share_a = static_cast<float>(fall_a / sum);
    const float share_b = static_cast<float>(fall_b / sum);
    for (int64_t c = 0; c < dim; ++c) values[c] = share_a * values[c] + share_b * other[c];
    a = static_cast<float>(max + std::log(sum));
  }
}

void CpuAttention::DoWriteKv(const KvFormat& format, const Tensor& keys, const Tensor& values,
                             std::span<const KvTarget> heads) {
  const PageLayout layout(format);
  const int64_t n = (keys.empty() ? values : keys).shape[0], kv_heads = std::ssize(heads);
  // Targets may start anywhere in a page, so some meet one page fewer.
  const int64_t pages = (n + kEntries - 2) / kEntries + 1;
  const int64_t volume = n * kv_heads * (format.key_dim + format.value_dim);
  const int workers = volume < kParallelWrites ? 1 : threads_;
#pragma omp parallel for schedule(static) num_threads(workers) if (workers > 1)
  for (int64_t u = 0; u < pages * kv_heads; ++u) {
    const int64_t h = u / pages, first_entry = heads[h].first_entry;
    const int64_t p = first_entry / kEntries + u % pages;
    const int64_t from = std::max(first_entry, p * kEntries);
    const int64_t to = std::min(first_entry + n, (p + 1) * kEntries);
    if (from >= to) continue;
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
  }
}

void CpuAttention::DoCopyKv(const KvFormat& format, const KvSegment& from, const Tensor& index,
                            const KvTarget& to) {
  const PageLayout layout(format);
  const int64_t n = index.shape[0], first_page = to.first_entry / kEntries;
  const int64_t pages = (to.first_entry + n - 1) / kEntries + 1 - first_page;
  const int workers = n * (format.key_dim + format.value_dim) < kParallelWrites ? 1 : threads_;
#pragma omp parallel for schedule(static) num_threads(workers) if (workers > 1)
  for (int64_t p = first_page; p < first_page + pages; ++p) {
    const int64_t begin = std::max(to.first_entry, p * kEntries);
    const int64_t end = std::min(to.first_entry + n, (p + 1) * kEntries);
    for (int64_t entry = begin; entry < end; ++entry) {
      const int32_t source = index.i32()[entry - to.first_entry];
      const int slot = static_cast<int>(source % kEntries);
      const int target = static_cast<int>(entry % kEntries);
      if (to.key_pages != nullptr) {
        CopyKey(layout, from.key_pages[source / kEntries], slot, to.key_pages[p], target);
      }
      if (to.value_pages != nullptr) {
        CopyValue(layout, from.value_pages[source / kEntries], slot, to.value_pages[p], target);
      }
    }
  }
}

void CpuAttention::DoReadKv(const KvFormat& format, const KvSegment& segment, int64_t first_entry,
                            Tensor keys, Tensor values) {
  const PageLayout layout(format);
  const int64_t n = (keys.empty() ? values : keys).shape[0], first_page = first_entry / kEntries;
  const int64_t end_page = (first_entry + n - 1) / kEntries + 1;
  const int workers = n * (format.key_dim + format.value_dim) < kParallelWrites ? 1 : threads_;
#pragma omp parallel for schedule(static) num_threads(workers) if (workers > 1)
  for (int64_t p = first_page; p < end_page; ++p) {
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
  }
}

}  // namespace attention_schedule

namespace {

const CodecKernels& CodecKernelsFor(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return Avx512CodecKernels();
  if (isa == Isa::kAvx2) return Avx2CodecKernels();
#endif
  (void)isa;
  return PortableCodecKernels();
}

const AttentionKernels& KernelsFor(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kAvx2:
      return Avx2AttentionKernels();
    case Isa::kAvx512:
      return Avx512AttentionKernels();
    case Isa::kAvx512Bf16:
    case Isa::kAmx:
      return Avx512Bf16AttentionKernels();
    case Isa::kPortable:
      break;
  }
#endif
  (void)isa;
  return PortableAttentionKernels();
}

}  // namespace

std::unique_ptr<AttentionOps> MakeCpuAttention(Isa isa, ThreadSettings threads) {
  return std::make_unique<attention_schedule::CpuAttention>(KernelsFor(isa), CodecKernelsFor(isa),
                                                            threads);
}

}  // namespace kvgauge
