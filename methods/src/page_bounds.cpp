// SPDX-License-Identifier: Apache-2.0
#include "methods/page_bounds.h"

#include <algorithm>
#include <utility>

#include "methods/repeating_view.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// keys: [n, dim]; limits: [ceil(n / page), dim]
void Bound(Ops& ops, const Tensor& keys, int64_t page, bool upper, Tensor limits) {
  const int64_t n = keys.shape[0], dim = keys.shape[1], full = n / page;
  if (full > 0) {
    // Row i of every full page.
    const auto strided = [&](int64_t i) {
      Tensor rows = keys.Slice(i, n);
      rows.shape[0] = full;
      rows.stride[0] = page * dim;
      return rows;
    };
    Tensor whole = limits.Slice(0, full);
    ops.rows->Convert(strided(0), whole);
    for (int64_t i = 1; i < page; ++i) {
      ops.rows->Combine(whole, strided(i), upper ? Binary::kMax : Binary::kMin, whole);
    }
  }
  if (full * page == n) return;
  ops.rows->ReduceColumns(keys.Slice(full * page, n), upper ? Reduction::kMax : Reduction::kMin,
                          limits[full]);
}

}  // namespace

Tensor PageBounds::Rows(const Buffer& buffer, const ModelShape& shape, int64_t begin, int64_t end) {
  return buffer
      .As(shape.cache_dtype,
          {buffer.size_bytes() / SizeOf(shape.cache_dtype) / shape.key_dim, shape.key_dim})
      .Slice(begin, end);
}

Tensor PageBounds::Widened(LayerView& view, const Buffer& buffer, const Tensor& limits) const {
  const int64_t count = columns(view);
  const Tensor wide = limits.Slice(0, count);
  view.ops().rows->Convert(Rows(buffer, view.shape(), 0, count), wide);
  return wide;
}

int64_t PageBounds::columns(const LayerView& view) const {
  constexpr int64_t kRoom = 16;
  if (view.ops().device == Device::kHost) return pages_;
  return std::min((pages_ + kRoom - 1) / kRoom * kRoom, capacity_);
}

Tensor PageBounds::LargestProducts(LayerView& view, const Tensor& q) const {
  return Products(view, q, view.Scratch(DType::kF32, {pages_, view.shape().key_dim}));
}

Tensor PageBounds::RoomyProducts(LayerView& view, const Tensor& q, const Tensor& limits) const {
  return Products(view, q, limits.Slice(0, columns(view)));
}

// As many columns as `limits` has rows.
Tensor PageBounds::Products(LayerView& view, const Tensor& q, const Tensor& limits) const {
  Ops& ops = view.ops();
  const int64_t group = q.shape[0], dim = q.shape[1], count = limits.shape[0];
  // A product with a positive number is largest at the upper bound, with a negative at the lower.
  const Tensor scores = view.Scratch(DType::kF32, {group, count});
  const Tensor part = view.Scratch(DType::kF32, {group, count});
  const Tensor half = view.Scratch(DType::kF32, {group, dim});
  const Tensor zero = view.Scratch(DType::kF32, {dim});
  for (const bool upper : {false, true}) {
    ops.rows->Combine(q, zero, upper ? Binary::kMax : Binary::kMin, half);
    ops.rows->Convert(Rows(upper ? high_ : low_, view.shape(), 0, count), limits);
    ops.linear->MatMulNT(half.Reshape({1, group, dim}), limits.Reshape({1, count, dim}), 1.0f,
                         part.Reshape({1, group, count}));
    ops.rows->Combine(scores, part, Binary::kAdd, scores);
  }
  return scores;
}

void PageBounds::Extend(LayerView& view, int64_t head, int64_t page, int64_t first) {
  const ModelShape& shape = view.shape();
  const int64_t length = view.lengths()[static_cast<size_t>(head)], begin = first / page;
  const int64_t pages = (length + page - 1) / page;
  Grow(view, begin, pages);
  pages_ = pages;
  RepeatingView* const repeating = Repeating(view);
  if (begin + 1 == pages && repeating != nullptr) {
    return ExtendOne(view, begin, repeating->Filled(KvSide::kKeys, head, begin * page, page));
  }
  const Tensor keys = view.Keys(head, begin * page);
  for (const bool upper : {false, true}) {
    const Tensor limits = view.Scratch(DType::kF32, {pages - begin, shape.key_dim});
    Bound(view.ops(), keys, page, upper, limits);
    view.ops().rows->Convert(limits, Rows(upper ? high_ : low_, shape, begin, pages));
  }
}

// Page `at`, the last one, of these keys [page, key_dim]. A device repeats what was submitted for
// the entry before: that depends neither on the page nor on how much of it is filled.
void PageBounds::ExtendOne(LayerView& view, int64_t at, const Tensor& keys) {
  Ops& ops = view.ops();
  const ModelShape& shape = view.shape();
  const auto place = static_cast<int32_t>(at);
  const Tensor where = Upload(view, std::span(&place, 1));
  const Tensor limit = view.Scratch(DType::kF32, {1, shape.key_dim});
  const Tensor narrow = view.Scratch(shape.cache_dtype, {1, shape.key_dim});
  for (const bool upper : {false, true}) {
    ops.rows->ReduceColumns(keys, upper ? Reduction::kMax : Reduction::kMin, limit[0]);
    ops.rows->Convert(limit, narrow);
    ops.select->Scatter(narrow, where, Rows(upper ? high_ : low_, shape, 0, capacity_));
  }
}

// Room for `pages`; the first `keep` stay. Where there is no memory it leaves everything as it is.
void PageBounds::Grow(LayerView& view, int64_t keep, int64_t pages) {
  if (pages <= capacity_) return;
  const ModelShape& shape = view.shape();
  MemoryOps& memory = *view.ops().memory;
  const int64_t capacity = std::max(pages + 16, 2 * capacity_);
  const int64_t size_bytes = capacity * shape.key_dim * SizeOf(shape.cache_dtype);
  Buffer larger[] = {memory.Allocate(size_bytes), memory.Allocate(size_bytes)};
  Buffer* const buffers[] = {&low_, &high_};
  for (size_t i = 0; i < 2; ++i) {
    if (keep > 0) {
      memory.Copy(Rows(*buffers[i], shape, 0, keep), Rows(larger[i], shape, 0, keep));
    }
    *buffers[i] = std::move(larger[i]);
  }
  capacity_ = capacity;
}

Status PageBounds::Fields(LayerView& view, StateFields& fields) {
  if (pages_ == 0) return {};
  KVG_TRY(fields.Rows("least keys of pages", view.ops(), Rows(low_, view.shape(), 0, pages_)));
  return fields.Rows("largest keys of pages", view.ops(), Rows(high_, view.shape(), 0, pages_));
}

Status PageIndex::Fields(LayerView& view, StateFields& fields) {
  for (PageBounds& head : heads) KVG_TRY(head.Fields(view, fields));
  return {};
}

void PageIndex::Begin(LayerView& view, int64_t page) {
  page_ = page;
  page_bytes_ = PageBounds::BytesOfPage(view.shape());
  heads.resize(static_cast<size_t>(view.shape().kv_heads));
  Append(view, std::vector<int64_t>(heads.size(), 0));
}

void PageIndex::Append(LayerView& view, std::span<const int64_t> first) {
  for (size_t h = 0; h < heads.size(); ++h) {
    if (first[h] < view.lengths()[h]) {
      heads[h].Extend(view, static_cast<int64_t>(h), page_, first[h]);
    }
  }
}

int64_t PageIndex::bytes() const {
  int64_t pages = 0;
  for (const PageBounds& head : heads) pages += head.pages();
  return pages * page_bytes_;
}

}  // namespace kvgauge
