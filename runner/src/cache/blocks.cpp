// SPDX-License-Identifier: Apache-2.0
#include "src/cache/blocks.h"

#include <algorithm>

namespace kvgauge {

Status BlockList::Own(int64_t i) {
  void* block = blocks_[static_cast<size_t>(i)];
  if (!pool_->Shared(block)) return {};
  const int64_t size_bytes = pool_->BlockBytes(block);
  void* copy = pool_->Allocate(size_bytes);
  if (copy == nullptr) return pool_->Refusal(size_bytes);
  pool_->ops().memory->Copy(pool_->Bytes(block, size_bytes), pool_->Bytes(copy, size_bytes));
  pool_->Release(std::exchange(blocks_[static_cast<size_t>(i)], copy));
  return {};
}

int64_t BlockList::allocated_bytes() const {
  int64_t bytes = 0;
  const void* last = nullptr;
  for (const void* block : blocks_) {
    if (block != nullptr && block != last) bytes += pool_->BlockBytes(block);
    last = block;
  }
  return bytes;
}

Tensor EntryArray::view() const {
  if (size_ == 0) return {};
  Tensor view = pool_->Bytes(memory_[0], size_);
  view.dtype = dtype_;
  return view;
}

Status EntryArray::Reserve(int64_t size) {
  if (size == 0) return {};
  const bool fits = memory_.size() > 0 && pool_->BlockBytes(memory_[0]) >= 4 * size;
  if (fits) return memory_.Own(0);
  // Growth by whole pages of entries, later by shares: few moves, little unused.
  const int64_t step = std::max<int64_t>(kKvPageEntries, size / 32);
  BlockList grown(*pool_);
  KVG_TRY(grown.Push(4 * ((size + step - 1) / step * step)));
  if (size_ > 0) {
    pool_->ops().memory->Copy(pool_->Bytes(memory_[0], 4 * size_),
                              pool_->Bytes(grown[0], 4 * size_));
  }
  memory_ = std::move(grown);
  return {};
}

Tensor EntryArray::Extend(int64_t count) {
  if (count == 0) return {};
  Tensor end = pool_->Bytes(static_cast<char*>(memory_[0]) + 4 * size_, count);
  end.dtype = dtype_;
  size_ += count;
  return end;
}

void EntryArray::AppendBits(const void* numbers, int64_t count) {
  if (count == 0) return;
  const Tensor from(const_cast<void*>(numbers), dtype_, {count});
  pool_->ops().memory->Copy(from, Extend(count));
}

Status EntryArray::AssignBits(const void* numbers, int64_t count) {
  EntryArray fresh(*pool_, dtype_);
  KVG_TRY(fresh.Reserve(count));
  fresh.AppendBits(numbers, count);
  *this = std::move(fresh);
  return {};
}

void EntryArray::Keep(const Tensor& index, const Buffer& spare) {
  const int64_t count = index.Numel();
  if (count > 0) {
    const Tensor kept = spare.As(dtype_, {count, 1});
    pool_->ops().select->Gather(view().Reshape({size_, 1}), index, kept);
    size_ = 0;
    pool_->ops().memory->Copy(kept.Reshape({count}), Extend(count));
  }
  size_ = count;
}

void EntryArray::Fetch(void* out) const {
  pool_->ops().memory->Copy(pool_->Bytes(memory_[0], 4 * size_),
                            Tensor(out, DType::kU8, {4 * size_}));
}

}  // namespace kvgauge
