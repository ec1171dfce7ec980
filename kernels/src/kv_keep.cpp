// SPDX-License-Identifier: Apache-2.0
// The checks of KeepKv, and what it is on the host.
#include <algorithm>
#include <vector>

#include "kernels/attention.h"

namespace kvgauge {
namespace {

void CheckNumbers(const Tensor& t, DType dtype, int64_t length, const char* what) {
  KVG_CHECK(t.dtype == dtype && t.rank == 1 && t.IsContiguous() && t.shape[0] == length, what);
}

void CheckMerge(const KvMerge& merge, int64_t length) {
  if (!merge.self.empty()) {
    CheckNumbers(merge.self, DType::kF32, length, "self must be f32 [length]");
  }
  if (merge.from.empty()) return;
  KVG_CHECK(merge.spread >= 1, "an entry goes to none");
  CheckNumbers(merge.from, DType::kI32, merge.count(), "from must be i32 [n]");
  CheckNumbers(merge.to, DType::kI32, merge.count(), "to must be i32 [n]");
  CheckNumbers(merge.weight, DType::kF32, merge.count(), "weight must be f32 [n]");
}

// False, and said in `outcome`, where `kept` is none.
bool MayKeep(const KvKeep& head, std::span<const int32_t> kept, int32_t* outcome) {
  int32_t before = -1;
  for (const int32_t entry : kept) {
    if (entry <= before || entry >= head.length) {
      outcome[static_cast<int>(KvKept::kRefused)] = 1;
      outcome[static_cast<int>(KvKept::kEntry)] = entry;
      outcome[static_cast<int>(KvKept::kBefore)] = before;
      outcome[static_cast<int>(KvKept::kLength)] = static_cast<int32_t>(head.length);
      return false;
    }
    before = entry;
  }
  return true;
}

int32_t Merged(const KvMerge& merge) {
  const int32_t* to = merge.to.empty() ? nullptr : merge.to.i32();
  return static_cast<int32_t>(
      std::count_if(to, to + merge.count(), [](int32_t entry) { return entry >= 0; }));
}

// rows: [length, dim]
void Merge(const KvMerge& merge, std::span<const int32_t> kept, int64_t dim,
           std::vector<float>& rows) {
  const std::vector<float> before = rows;
  std::vector<bool> met(rows.size() / static_cast<size_t>(std::max<int64_t>(dim, 1)));
  for (int64_t step = 0; step < (merge.count() > 0 ? merge.spread : 0); ++step) {
    for (int64_t i = 0; i < merge.count(); ++i) {
      int32_t to = merge.to.i32()[i];
      if (to < 0) continue;
      const auto at = std::lower_bound(kept.begin(), kept.end(), to) - kept.begin() + step;
      if (at >= std::ssize(kept)) continue;
      to = kept[static_cast<size_t>(at)];
      float* const row = &rows[static_cast<size_t>(to * dim)];
      if (!met[static_cast<size_t>(to)] && !merge.self.empty()) {
        for (int64_t d = 0; d < dim; ++d) row[d] *= merge.self.f32()[to];
      }
      met[static_cast<size_t>(to)] = true;
      const float* const from = &before[static_cast<size_t>(merge.from.i32()[i] * dim)];
      for (int64_t d = 0; d < dim; ++d) row[d] += merge.weight.f32()[i] * from[d];
    }
  }
}

}  // namespace

void AttentionOps::KeepKv(const KvFormat& format, std::span<const KvKeep> heads, Tensor outcome) {
  KVG_CHECK(IsFloat(format.dtype), "cache dtype is not a float type");
  KVG_CHECK(format.key_dim > 0 && format.value_dim > 0, "head dims must be positive");
  KVG_CHECK(outcome.dtype == DType::kI32 && outcome.rank == 2 && outcome.IsContiguous() &&
                outcome.shape[0] == std::ssize(heads) && outcome.shape[1] == kKvKeptNumbers,
            "outcome must be i32 [heads, kKvKeptNumbers]");
  for (const KvKeep& head : heads) {
    KVG_CHECK(head.index.dtype == DType::kI32 && head.index.rank == 1 && head.index.IsContiguous(),
              "index must be i32 [n]");
    KVG_CHECK(head.first >= 0 && head.index.shape[0] <= head.length,
              "more entries stay than are held");
    KVG_CHECK(head.keys.from.empty() || head.key_pages != nullptr, "keys are merged, not held");
    KVG_CHECK(head.values.from.empty() || head.value_pages != nullptr,
              "values are merged, not held");
    CheckMerge(head.keys, head.length);
    CheckMerge(head.values, head.length);
    for (const Tensor& numbers : head.numbers) {
      if (numbers.empty()) continue;
      KVG_CHECK(SizeOf(numbers.dtype) == 4 && numbers.rank == 1 && numbers.IsContiguous() &&
                    numbers.shape[0] == head.length,
                "numbers must be [length] of 4 bytes each");
    }
  }
  if (!heads.empty()) DoKeepKv(format, heads, outcome);
}

void AttentionOps::DoKeepKv(const KvFormat& format, std::span<const KvKeep> heads, Tensor outcome) {
  for (int64_t h = 0; h < std::ssize(heads); ++h) {
    const KvKeep& head = heads[static_cast<size_t>(h)];
    int32_t* const row = outcome.i32() + h * kKvKeptNumbers;
    const int64_t n = head.index.shape[0], gone = head.length - n;
    const std::span<const int32_t> kept(head.index.i32(), static_cast<size_t>(n));
    if (row[static_cast<int>(KvKept::kRefused)] != 0 || !MayKeep(head, kept, row)) continue;
    row[static_cast<int>(KvKept::kMerged)] += std::max(Merged(head.keys), Merged(head.values));
    for (const bool is_keys : {true, false}) {
      void* const* pages = is_keys ? head.key_pages : head.value_pages;
      if (pages == nullptr || head.length == 0) continue;
      const int64_t dim = is_keys ? format.key_dim : format.value_dim;
      std::vector<float> rows(static_cast<size_t>(head.length * dim));
      KvSegment segment;
      segment.length = head.first + head.length;
      (is_keys ? segment.key_pages : segment.value_pages) = pages;
      const Tensor all = View(rows, {head.length, dim});
      ReadKv(format, segment, head.first, is_keys ? all : Tensor(), is_keys ? Tensor() : all);
      Merge(is_keys ? head.keys : head.values, kept, dim, rows);
      // Behind those that stay: zeros, where anyone looks.
      const int64_t end = head.first + n, page_end = (end + kKvPageEntries - 1) / kKvPageEntries;
      const int64_t zeros =
          head.up ? 0 : std::min(page_end * kKvPageEntries, head.first + head.length) - end;
      std::vector<float> stay(static_cast<size_t>((n + zeros) * dim));
      for (int64_t i = 0; i < n; ++i) {
        std::copy_n(&rows[static_cast<size_t>(kept[static_cast<size_t>(i)] * dim)], dim,
                    &stay[static_cast<size_t>(i * dim)]);
      }
      const Tensor written = View(stay, {n + zeros, 1, dim});
      const KvTarget target = {.key_pages = is_keys ? pages : nullptr,
                               .value_pages = is_keys ? nullptr : pages,
                               .first_entry = head.first + (head.up ? gone : 0)};
      WriteKv(format, is_keys ? written : Tensor(), is_keys ? Tensor() : written, {&target, 1});
    }
    for (const Tensor& numbers : head.numbers) {
      if (numbers.empty()) continue;
      auto* const all = numbers.As<uint32_t>();
      for (int64_t i = 0; i < n; ++i) all[i] = all[kept[static_cast<size_t>(i)]];
    }
  }
}

}  // namespace kvgauge
