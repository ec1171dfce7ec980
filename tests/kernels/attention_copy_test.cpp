// SPDX-License-Identifier: Apache-2.0
// Entries move between float pages bit for bit.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "backends.h"
#include "kernels/attention.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

// Types of pages, and whether these are KvFormat::by_entry.
constexpr std::pair<DType, bool> kPageKinds[] = {{DType::kF32, false},  {DType::kF16, false},
                                                 {DType::kBF16, false}, {DType::kF32, true},
                                                 {DType::kF16, true},   {DType::kBF16, true}};

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
  for (const auto& [dtype, by_entry] : kPageKinds) {
    for (const int64_t dim : {1, 33, 64, 130}) {
      std::vector<Backend<AttentionOps>> backends = CpuBackends(MakeCpuAttention, {1, 3});
      backends.push_back({"reference", MakeReferenceAttention()});
      for (const Backend<AttentionOps>& b : backends) {
        SCOPED_TRACE(b.name + " dim " + std::to_string(dim));
        const KvFormat format = {
            .dtype = dtype, .key_dim = dim, .value_dim = dim + 3, .by_entry = by_entry};
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

// Entries go one by one, in runs and many at a time, from the same pages to the same pages.
TEST(AttentionCopy, EntriesMoveDownInPlace) {
  constexpr int64_t kEntries = 331;
  std::vector<std::vector<int32_t>> kept(3);
  for (int32_t i = 0; i < kEntries; ++i) {
    if (i != 5) kept[0].push_back(i);
    if (i % 64 != 63 && i != 100) kept[1].push_back(i);
    if (i < 3 || i >= 210) kept[2].push_back(i);
  }
  for (const auto& [dtype, by_entry] : kPageKinds) {
    for (const int64_t dim : {1, 33, 64, 130}) {
      std::vector<Backend<AttentionOps>> backends = CpuBackends(MakeCpuAttention, {1, 3});
      backends.push_back({"reference", MakeReferenceAttention()});
      for (const Backend<AttentionOps>& b : backends) {
        for (const std::vector<int32_t>& all : kept) {
          SCOPED_TRACE(b.name + " dim " + std::to_string(dim) + " of " +
                       std::to_string(all.size()));
          const KvFormat format = {
              .dtype = dtype, .key_dim = dim, .value_dim = dim + 3, .by_entry = by_entry};
          Head head(*b.ops, format, kEntries);
          const std::vector<float> k = RandomValues(kEntries * dim, 1);
          const std::vector<float> v = RandomValues(kEntries * (dim + 3), 2);
          const KvTarget target = {head.segment.key_pages, head.segment.value_pages, 0};
          b.ops->WriteKv(format, View(k, {kEntries, 1, dim}), View(v, {kEntries, 1, dim + 3}),
                         {&target, 1});
          const int64_t n = std::ssize(all);
          std::vector<float> want_k(n * dim), want_v(n * (dim + 3));
          b.ops->GatherKv(format, head.segment, View(all, {n}), View(want_k, {n, dim}),
                          View(want_v, {n, dim + 3}));

          int32_t same = 0;
          while (all[same] == same) ++same;
          const std::span<const int32_t> moved = std::span(all).subspan(same);
          const Tensor index = View(moved, {std::ssize(moved)});
          b.ops->CopyKv(format, head.segment, index, {head.segment.key_pages, nullptr, same});
          b.ops->CopyKv(format, head.segment, index, {nullptr, head.segment.value_pages, same});
          std::vector<float> got_k(want_k.size()), got_v(want_v.size());
          b.ops->ReadKv(format, head.segment, 0, View(got_k, {n, dim}), View(got_v, {n, dim + 3}));
          EXPECT_TRUE(SameBits(got_k, want_k));
          EXPECT_TRUE(SameBits(got_v, want_v));
        }
      }
    }
  }
}

// Alone, and in short and long runs that begin at even and odd entries or meet a page's end.
TEST(AttentionCopy, GathersWhatIsReadInOrder) {
  constexpr int64_t kEntries = 200;
  std::vector<int32_t> index = {199, 3, 3, 64, 0, 127, 61, 62, 63, 64, 65, 11, 12, 13};
  for (int32_t i = 119; i < 151; ++i) index.push_back(i);
  const int64_t n = std::ssize(index);
  for (const auto& [dtype, by_entry] : kPageKinds) {
    std::vector<Backend<AttentionOps>> backends = CpuBackends(MakeCpuAttention, {1, 3});
    backends.push_back({"reference", MakeReferenceAttention()});
    for (const Backend<AttentionOps>& b : backends) {
      SCOPED_TRACE(b.name);
      const KvFormat format = {
          .dtype = dtype, .key_dim = 33, .value_dim = 70, .by_entry = by_entry};
      Head head(*b.ops, format, kEntries);
      const std::vector<float> k = RandomValues(kEntries * 33, 3);
      const std::vector<float> v = RandomValues(kEntries * 70, 4);
      const KvTarget target = {head.segment.key_pages, head.segment.value_pages, 0};
      b.ops->WriteKv(format, View(k, {kEntries, 1, 33}), View(v, {kEntries, 1, 70}), {&target, 1});
      std::vector<float> all_k(k.size()), all_v(v.size()), got_k(n * 33), got_v(n * 70);
      b.ops->ReadKv(format, head.segment, 0, View(all_k, {kEntries, 33}),
                    View(all_v, {kEntries, 70}));
      b.ops->GatherKv(format, head.segment, View(index, {n}), View(got_k, {n, 33}), Tensor());
      b.ops->GatherKv(format, head.segment, View(index, {n}), Tensor(), View(got_v, {n, 70}));
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_TRUE(SameBits(std::span<const float>(&got_k[i * 33], 33),
                             std::span<const float>(&all_k[index[i] * 33], 33)));
        EXPECT_TRUE(SameBits(std::span<const float>(&got_v[i * 70], 70),
                             std::span<const float>(&all_v[index[i] * 70], 70)));
      }
    }
  }
}

}  // namespace
}  // namespace kvgauge
