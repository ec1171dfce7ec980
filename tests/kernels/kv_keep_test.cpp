// SPDX-License-Identifier: Apache-2.0
// Entries that stay, in their own pages, by lists that the host need not know.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "backends.h"
#include "kernels/attention.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

std::vector<Backend<AttentionOps>> AllBackends() {
  std::vector<Backend<AttentionOps>> backends = CpuBackends(MakeCpuAttention, {1});
  backends.push_back({"reference", MakeReferenceAttention()});
  return backends;
}

struct List {
  std::vector<int32_t> from, to;
  std::vector<float> weight, self;
  int64_t spread = 1;

  KvMerge merge() const {
    KvMerge merge;
    merge.spread = spread;
    if (from.empty()) return merge;
    merge.from = View(from, {std::ssize(from)});
    merge.to = View(to, {std::ssize(to)});
    merge.weight = View(weight, {std::ssize(weight)});
    if (!self.empty()) merge.self = View(self, {std::ssize(self)});
    return merge;
  }
};

// Entries of one head in pages of their own, behind `first` slots.
class Held {
 public:
  Held(AttentionOps& ops, const KvFormat& format, int64_t first, int64_t length, uint64_t seed)
      : ops_(ops), format_(format), first_(first), length_(length) {
    const int64_t slots = first + length, dims[2] = {format.key_dim, format.value_dim};
    for (const bool keys : {true, false}) {
      const int side = keys ? 0 : 1;
      for (int64_t p = 0; p * kKvPageEntries < slots; ++p) {
        memory_.push_back(HostBuffer(keys ? ops.KeyPageBytes(format) : ops.ValuePageBytes(format)));
        pages_[side].push_back(memory_.back().data());
      }
      const std::vector<float> rows = RandomValues(slots * dims[side], seed + side);
      const Tensor all = View(rows, {slots, 1, dims[side]});
      const KvTarget target = {pages_[0].data(), pages_[1].data(), 0};
      ops.WriteKv(format, keys ? all : Tensor(), keys ? Tensor() : all, {&target, 1});
    }
    for (size_t i = 0; i < numbers_.size(); ++i) {
      for (int64_t e = 0; e < length; ++e) {
        numbers_[i].push_back(static_cast<int32_t>(1000 * i + e));
      }
    }
  }

  KvKeep Keep(const std::vector<int32_t>& index, bool up) const {
    KvKeep keep;
    keep.index = View(index, {std::ssize(index)});
    keep.length = length_;
    keep.first = first_;
    keep.up = up;
    keep.key_pages = pages_[0].data();
    keep.value_pages = pages_[1].data();
    for (size_t i = 0; i < numbers_.size(); ++i) keep.numbers[i] = View(numbers_[i], {length_});
    return keep;
  }
  // [n, dim] from that slot on.
  std::vector<float> Read(bool keys, int64_t slot, int64_t n) const {
    const int64_t dim = keys ? format_.key_dim : format_.value_dim;
    std::vector<float> rows(n * dim);
    KvSegment segment;
    segment.key_pages = pages_[0].data();
    segment.value_pages = pages_[1].data();
    segment.length = std::ssize(pages_[0]) * kKvPageEntries;
    const Tensor out = View(rows, {n, dim});
    ops_.ReadKv(format_, segment, slot, keys ? out : Tensor(), keys ? Tensor() : out);
    return rows;
  }
  const std::vector<int32_t>& numbers(size_t i) const { return numbers_[i]; }

 private:
  AttentionOps& ops_;
  KvFormat format_;
  int64_t first_, length_;
  std::vector<Buffer> memory_;
  std::vector<void*> pages_[2];
  std::array<std::vector<int32_t>, 2> numbers_;
};

std::vector<int32_t> Without(int32_t length, std::vector<int32_t> gone) {
  std::vector<int32_t> index;
  for (int32_t i = 0; i < length; ++i) {
    if (std::find(gone.begin(), gone.end(), i) == gone.end()) index.push_back(i);
  }
  return index;
}

struct Outcome {
  explicit Outcome(int64_t count) : numbers(count * kKvKeptNumbers), heads(count) {}
  Tensor view() const { return View(numbers, {heads, kKvKeptNumbers}); }
  int32_t of(int64_t head, KvKept what) const {
    return numbers[head * kKvKeptNumbers + static_cast<int>(what)];
  }
  std::vector<int32_t> numbers;
  int64_t heads;
};

TEST(KvKeep, WhatStaysKeepsItsBitsAndOrder) {
  constexpr int32_t kLength = 331;
  std::vector<int32_t> stretch, odd;
  for (int32_t i = 4; i < 150; ++i) stretch.push_back(i);
  for (int32_t i = 0; i < kLength; i += 2) odd.push_back(i);
  const std::vector<std::vector<int32_t>> lists = {
      Without(kLength, {5}),     Without(kLength, {kLength - 1}),
      Without(kLength, {0}),     Without(kLength, {4, 5, 200}),
      Without(kLength, stretch), Without(kLength, odd),
      Without(kLength, {}),      {}};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t dim : {1, 33}) {
      for (const Backend<AttentionOps>& b : AllBackends()) {
        KvFormat format = {.dtype = dtype, .key_dim = dim, .value_dim = dim + 18};
        for (const bool up : {false, true}) {
          format.by_entry = up == (dim == 1);
          for (const int64_t first : {0, 19}) {
            SCOPED_TRACE(StrCat(b.name, " dim ", dim, " first ", first, up ? " up" : " down"));
            // All heads in one call.
            std::vector<std::unique_ptr<Held>> held;
            std::vector<std::vector<float>> before;
            std::vector<KvKeep> keeps;
            for (size_t i = 0; i < lists.size(); ++i) {
              held.push_back(std::make_unique<Held>(*b.ops, format, first, kLength, 10 * i));
              for (const bool keys : {true, false}) {
                before.push_back(held.back()->Read(keys, first, kLength));
              }
              keeps.push_back(held.back()->Keep(lists[i], up));
            }
            const Outcome outcome(std::ssize(lists));
            b.ops->KeepKv(format, keeps, outcome.view());
            for (size_t i = 0; i < lists.size(); ++i) {
              const std::vector<int32_t>& index = lists[i];
              const int64_t n = std::ssize(index), at = first + (up ? kLength - n : 0);
              EXPECT_EQ(outcome.of(static_cast<int64_t>(i), KvKept::kRefused), 0) << i;
              for (const bool keys : {true, false}) {
                const std::vector<float>& old = before[2 * i + (keys ? 0 : 1)];
                const int64_t width = keys ? dim : dim + 18;
                std::vector<float> want;
                for (const int32_t e : index) {
                  want.insert(want.end(), &old[e * width], &old[e * width] + width);
                }
                EXPECT_TRUE(SameBits(held[i]->Read(keys, at, n), want)) << i;
                // To the end of the last page there is nothing.
                const int64_t end = (at + n + kKvPageEntries - 1) / kKvPageEntries * kKvPageEntries;
                const std::vector<float> rest = held[i]->Read(keys, at + n, end - at - n);
                EXPECT_TRUE(SameBits(rest, std::vector<float>(rest.size()))) << i;
              }
              for (int64_t k = 0; k < n; ++k) {
                ASSERT_EQ(held[i]->numbers(0)[k], index[k]) << i;
                ASSERT_EQ(held[i]->numbers(1)[k], 1000 + index[k]) << i;
              }
            }
          }
        }
      }
    }
  }
}

TEST(KvKeep, WhatGoesIsAddedToWhatStays) {
  constexpr int32_t kLength = 150;
  const std::vector<int32_t> gone = {3, 4, 80}, index = Without(kLength, gone);
  std::vector<float> self(kLength, 1.0f);
  self[81] = 0.25f;
  // Twice to one entry; to none; to those behind it, at the end fewer; from one that stays.
  const std::vector<List> lists = {
      {gone, {5, 5, 81}, {0.5f, 0.25f, 0.75f}, self, 1},
      {gone, {5, -1, 81}, {0.5f, 0.25f, 0.75f}, {}, 70},
      {gone, {2, 5, 149}, {1.0f, 0.125f, 2.0f}, {}, 3},
      {{3, 5}, {5, 6}, {0.5f, 0.5f}, {}, 1},
  };
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const Backend<AttentionOps>& b : AllBackends()) {
      const KvFormat format = {.dtype = dtype, .key_dim = 34, .value_dim = 16};
      const double round = dtype == DType::kF32 ? 1e-6 : dtype == DType::kF16 ? 1e-3 : 8e-3;
      for (const bool up : {false, true}) {
        for (const List& list : lists) {
          for (const bool keys : {true, false}) {
            SCOPED_TRACE(StrCat(b.name, " spread ", list.spread, keys ? " keys" : " values"));
            constexpr int64_t kFirst = 7;
            Held held(*b.ops, format, kFirst, kLength, 5);
            const int64_t dim = keys ? format.key_dim : format.value_dim;
            const std::vector<float> old = held.Read(keys, kFirst, kLength);
            const std::vector<float> other = held.Read(!keys, kFirst, kLength);
            KvKeep keep = held.Keep(index, up);
            (keys ? keep.keys : keep.values) = list.merge();
            const Outcome outcome(1);
            b.ops->KeepKv(format, {&keep, 1}, outcome.view());
            const int64_t at = kFirst + (up ? std::ssize(gone) : 0);
            const std::vector<float> got = held.Read(keys, at, std::ssize(index));
            int32_t merged = 0;
            for (const int32_t to : list.to) merged += to >= 0 ? 1 : 0;
            EXPECT_EQ(outcome.of(0, KvKept::kMerged), merged);
            for (int64_t k = 0; k < std::ssize(index); ++k) {
              for (int64_t d = 0; d < dim; ++d) {
                const int32_t entry = index[k];
                double want = old[entry * dim + d];
                bool met = false;
                for (size_t i = 0; i < list.to.size(); ++i) {
                  const auto to = std::lower_bound(index.begin(), index.end(), list.to[i]);
                  const int64_t behind = k - (to - index.begin());
                  if (list.to[i] < 0 || behind < 0 || behind >= list.spread) continue;
                  if (!met && !list.self.empty()) want *= list.self[entry];
                  met = true;
                  want += double{list.weight[i]} * old[list.from[i] * dim + d];
                }
                const float is = got[k * dim + d];
                if (!met) {
                  ASSERT_EQ(is, want) << k;
                } else {
                  ASSERT_NEAR(is, want, round * (1 + std::abs(want))) << k;
                }
              }
            }
            // The other side only moved.
            const int64_t width = keys ? format.value_dim : format.key_dim;
            const std::vector<float> moved = held.Read(!keys, at, std::ssize(index));
            for (int64_t k = 0; k < std::ssize(index) * width; ++k) {
              ASSERT_EQ(moved[k], other[index[k / width] * width + k % width]);
            }
          }
        }
      }
    }
  }
}

TEST(KvKeep, WhatIsNoListIsRefusedAndChangesNothing) {
  constexpr int32_t kLength = 70;
  std::vector<std::vector<int32_t>> lists = {Without(kLength, {9}), Without(kLength, {9}),
                                             Without(kLength, {9}), Without(kLength, {9})};
  std::swap(lists[0][3], lists[0][4]);  // 4, 3
  lists[1].back() = kLength;
  lists[2][0] = -1;
  const KvFormat format = {.dtype = DType::kF16, .key_dim = 8, .value_dim = 8};
  for (const Backend<AttentionOps>& b : AllBackends()) {
    SCOPED_TRACE(b.name);
    std::vector<std::unique_ptr<Held>> held;
    std::vector<KvKeep> keeps;
    for (const std::vector<int32_t>& list : lists) {
      held.push_back(std::make_unique<Held>(*b.ops, format, 0, kLength, 3));
      keeps.push_back(held.back()->Keep(list, true));
    }
    const std::vector<float> before = held[0]->Read(true, 0, kLength);
    const Outcome outcome(std::ssize(lists));
    b.ops->KeepKv(format, keeps, outcome.view());
    const std::vector<std::vector<int32_t>> want = {
        {1, 3, 4, kLength, 0}, {1, kLength, kLength - 2, kLength, 0}, {1, -1, -1, kLength, 0}};
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(std::vector<int32_t>(&outcome.numbers[i * kKvKeptNumbers],
                                     &outcome.numbers[i * kKvKeptNumbers] + kKvKeptNumbers),
                want[i]);
      EXPECT_TRUE(SameBits(held[i]->Read(true, 0, kLength), before));
      EXPECT_EQ(held[i]->numbers(0)[69], 69);
    }
    // The fourth was right, and is refused no more than before; the first stays refused.
    EXPECT_EQ(outcome.of(3, KvKept::kRefused), 0);
    EXPECT_EQ(held[3]->numbers(0)[9], 10);
    const std::vector<int32_t> right = Without(kLength, {0});
    const KvKeep again = held[0]->Keep(right, false);
    const Tensor first = outcome.view().Slice(0, 1);
    b.ops->KeepKv(format, {&again, 1}, first);
    EXPECT_TRUE(SameBits(held[0]->Read(true, 0, kLength), before));
    EXPECT_EQ(outcome.of(0, KvKept::kEntry), 3);
  }
}

}  // namespace
}  // namespace kvgauge
