// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "cuda/kv_keep_lists.h"

namespace kvgauge::cuda {
namespace {

static_assert(KeepView::kMostNumbers == KvKeep::kMostNumbers);

int64_t PagesOf(int64_t slots) { return (slots + kPageEntries - 1) / kPageEntries; }

// The scratch bytes of the lists of what goes where: numbers of sums first, then targets and
// owners.
int64_t MergeBytes(const KvMerge& merge, int64_t dim) {
  return merge.count() == 0 ? 0 : merge.count() * merge.spread * (dim + 2) * 4;
}

MergeView ViewOf(const KvMerge& merge, int64_t dim, char* scratch) {
  if (merge.count() == 0) return {};
  const int64_t targets = merge.count() * merge.spread;
  auto* const sums = reinterpret_cast<float*>(scratch);
  auto* const lists = reinterpret_cast<int32_t*>(sums + targets * dim);
  return {merge.from.As<const int32_t>(),
          merge.to.As<const int32_t>(),
          merge.weight.As<const float>(),
          merge.self.As<const float>(),
          static_cast<int>(merge.count()),
          static_cast<int>(merge.spread),
          lists,
          lists + targets,
          sums};
}

}  // namespace

void Keeper::Keep(const PageLayout& layout, std::span<const KvKeep> heads, const Tensor& outcome) {
  KeepWork work;
  work.heads = std::ssize(heads);
  int64_t table_bytes = work.heads * static_cast<int64_t>(sizeof(KeepView)) + Tables::kGap;
  int64_t merge_bytes = 0;
  for (const KvKeep& head : heads) {
    table_bytes += 2 * (8 * PagesOf(head.first + head.length) + Tables::kGap);
    merge_bytes +=
        MergeBytes(head.keys, layout.key_dim) + MergeBytes(head.values, layout.value_dim);
  }
  auto* scratch = merge_bytes == 0 ? nullptr : static_cast<char*>(merges_.AtLeast(merge_bytes));
  work.merges = merge_bytes > 0;
  tables_.Begin(table_bytes);
  std::vector<KeepView> views;
  for (int64_t h = 0; h < work.heads; ++h) {
    const KvKeep& head = heads[static_cast<size_t>(h)];
    const auto pages = [&](void* const* list) -> void* const* {
      if (list == nullptr) return nullptr;
      work.moves = true;
      return tables_.Put(
          std::span<void* const>(list, static_cast<size_t>(PagesOf(head.first + head.length))));
    };
    const auto merge = [&](const KvMerge& one, int dim) {
      char* const mine = scratch;
      scratch += MergeBytes(one, dim);
      return ViewOf(one, dim, mine);
    };
    KeepView view = {
        .index = head.index.As<const int32_t>(),
        .n = head.index.shape[0],
        .length = head.length,
        .first = head.first,
        .up = head.up,
        .pages = {pages(head.key_pages), pages(head.value_pages)},
        .merges = {merge(head.keys, layout.key_dim), merge(head.values, layout.value_dim)},
        .numbers = {},
        .outcome = outcome.As<int32_t>() + h * kKvKeptNumbers};
    for (size_t i = 0; i < head.numbers.size(); ++i) {
      view.numbers[i] = head.numbers[i].As<uint32_t>();
      work.numbers |= view.numbers[i] != nullptr;
    }
    views.push_back(view);
  }
  const KeepView* const list = tables_.Put(std::span<const KeepView>(views));
  tables_.Send(stream_);
  KeepEntries(layout, work, list, stream_);
}

}  // namespace kvgauge::cuda
