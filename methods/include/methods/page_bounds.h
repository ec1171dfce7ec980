// SPDX-License-Identifier: Apache-2.0
// The smallest and the largest number of each channel over the keys of a page.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "methods/stages.h"

namespace kvgauge {

// Bounds of one head's pages, the last one as far as it is filled.
class PageBounds {
 public:
  int64_t pages() const { return pages_; }
  // The largest product that a key within a page's bounds could have with each query: [group,
  // pages]. q: [group, key_dim]
  Tensor LargestProducts(LayerView& view, const Tensor& q) const;
  // The same with room for pages to come, [group, columns]: in most steps of a device it has as
  // many columns as in the step before. Columns behind the pages mean nothing. limits: working
  // memory [columns or more, key_dim] f32.
  int64_t columns(const LayerView& view) const;
  Tensor RoomyProducts(LayerView& view, const Tensor& q, const Tensor& limits) const;
  // The bounds in the same way, [columns, key_dim] of `limits`.
  Tensor Low(LayerView& view, const Tensor& limits) const { return Widened(view, low_, limits); }
  Tensor High(LayerView& view, const Tensor& limits) const { return Widened(view, high_, limits); }
  // From the head's keys, where entries from `first` on are new.
  void Extend(LayerView& view, int64_t head, int64_t page, int64_t first);

  // As Reader::Fields, of as many pages as there are.
  Status Fields(LayerView& view, StateFields& fields);

  // Both bounds of one page, in the cache's type.
  static int64_t BytesOfPage(const ModelShape& shape) {
    return 2 * shape.key_dim * SizeOf(shape.cache_dtype);
  }

 private:
  static Tensor Rows(const Buffer& buffer, const ModelShape& shape, int64_t begin, int64_t end);
  Tensor Widened(LayerView& view, const Buffer& buffer, const Tensor& limits) const;
  Tensor Products(LayerView& view, const Tensor& q, const Tensor& limits) const;
  void ExtendOne(LayerView& view, int64_t at, const Tensor& keys);
  void Grow(LayerView& view, int64_t keep, int64_t pages);

  int64_t pages_ = 0, capacity_ = 0;
  Buffer low_, high_;  // [capacity, key_dim] of the cache's type
};

// A reader's index: bounds of the pages of each head of a layer.
struct PageIndex : Reader::State {
  std::vector<PageBounds> heads;  // none before Begin

  // Pages of so many entries, of all that is held.
  void Begin(LayerView& view, int64_t page);
  // As Reader::Append. Nothing happens before Begin.
  void Append(LayerView& view, std::span<const int64_t> first);
  int64_t bytes() const override;
  // At most that of a layer that has the heads of `shape`, with so many entries each.
  static int64_t MostBytes(const ModelShape& shape, int64_t page, int64_t entries) {
    return shape.kv_heads * ((entries + page - 1) / page) * PageBounds::BytesOfPage(shape);
  }
  Status Fields(LayerView& view, StateFields& fields);  // as Reader::Fields

 private:
  int64_t page_ = 0, page_bytes_ = 0;
};

}  // namespace kvgauge
