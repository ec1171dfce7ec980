// SPDX-License-Identifier: Apache-2.0
// Entries move between float pages bit for bit.
#include <gtest/gtest.h>

#include <vector>

#include "backends.h"
#include "kernels/attention.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

// The pages of one stream.
struct Pages {
  Pages(int64_t entries, int64_t page_bytes) {
    for (int64_t p = 0; p * kKvPageEntries < entries; ++p) {
      memory.push_back(HostBuffer(page_bytes));
      list.push_back(memory.back().data());
    }
  }
  std::vector<Buffer> memory;
  std::vector<void*> list;
};

struct Head {
  Head(const AttentionOps& ops, const KvFormat& format, int64_t entries)
      : keys(entries, ops.KeyPageBytes(format)), values(entries, ops.ValuePageBytes(format)) {
    segment.key_pages = keys.list.data();
    segment.value_pages = values.list.data();
    segment.length = entries;
  }
  Pages keys, values;
  KvSegment segment;
};

TEST(AttentionCopy, KeepsBitsWhereverEntriesGo) {
  constexpr int64_t kEntries = 700, kFirst = 37;
  std::vector<int32_t> index;
  for (int32_t i = 0; i < kEntries; i += i % 7 == 3 ? 1 : 2) index.push_back(i);
  const int64_t n = std::ssize(index);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t dim : {1, 33, 64, 130}) {
      std::vector<Backend<AttentionOps>> backends = CpuBackends(MakeCpuAttention, {1, 3});
      backends.push_back({"reference", MakeReferenceAttention()});
      for (const Backend<AttentionOps>& b : backends) {
        SCOPED_TRACE(b.name + " dim " + std::to_string(dim));
        const KvFormat format = {.dtype = dtype, .key_dim = dim, .value_dim = dim + 3};
        Head from(*b.ops, format, kEntries), to(*b.ops, format, kFirst + n);
        const std::vector<float> k = RandomValues(kEntries * dim, 1);
        const std::vector<float> v = RandomValues(kEntries * (dim + 3), 2);
        const KvTarget all = {from.segment.key_pages, from.segment.value_pages, 0};
        b.ops->WriteKv(format, View(k, {kEntries, 1, dim}), View(v, {kEntries, 1, dim + 3}),
                       {&all, 1});
        // The entries before stay what they are.
        const KvTarget before = {to.segment.key_pages, to.segment.value_pages, 0};
        b.ops->WriteKv(format, View(k, {kEntries, 1, dim}).Slice(0, kFirst),
                       View(v, {kEntries, 1, dim + 3}).Slice(0, kFirst), {&before, 1});
        b.ops->CopyKv(format, from.segment, View(index, {n}),
                      {to.segment.key_pages, nullptr, kFirst});
        b.ops->CopyKv(format, from.segment, View(index, {n}),
                      {nullptr, to.segment.value_pages, kFirst});

        std::vector<float> held_k(k.size()), held_v(v.size());
        b.ops->ReadKv(format, from.segment, 0, View(held_k, {kEntries, dim}),
                      View(held_v, {kEntries, dim + 3}));
        std::vector<float> got_k((kFirst + n) * dim), got_v((kFirst + n) * (dim + 3));
        b.ops->ReadKv(format, to.segment, 0, View(got_k, {kFirst + n, dim}),
                      View(got_v, {kFirst + n, dim + 3}));
        std::vector<float> want_k, want_v;
        for (int64_t i = 0; i < kFirst + n; ++i) {
          const int64_t source = i < kFirst ? i : index[i - kFirst];
          want_k.insert(want_k.end(), &held_k[source * dim], &held_k[source * dim] + dim);
          want_v.insert(want_v.end(), &held_v[source * (dim + 3)],
                        &held_v[source * (dim + 3)] + dim + 3);
        }
        EXPECT_TRUE(SameBits(got_k, want_k));
        EXPECT_TRUE(SameBits(got_v, want_v));
      }
    }
  }
}

}  // namespace
}  // namespace kvgauge
