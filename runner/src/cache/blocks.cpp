// SPDX-License-Identifier: Apache-2.0
#include "src/cache/blocks.h"

#include <algorithm>
#include <cstring>

namespace kvgauge {

BlockMoves::~BlockMoves() {
  Copy();
  pool_->Release(left_);
}

Result<void*> BlockMoves::Move(void* block, BlockPool::Where to) {
  if (const auto found = moved_.find(block); found != moved_.end()) {
    pool_->Retain(found->second);
    left_.push_back(block);
    return found->second;
  }
  const int64_t size_bytes = pool_->BlockBytes(block);
  void* const moved = pool_->Allocate(size_bytes, to);
  if (moved == nullptr) return pool_->Refusal(size_bytes, to);
  copies_.push_back({pool_->Bytes(block, size_bytes), pool_->Bytes(moved, size_bytes)});
  moved_.emplace(block, moved);
  left_.push_back(block);
  return moved;
}

void BlockMoves::Copy() {
  if (!copies_.empty()) pool_->ops().memory->CopyAll(copies_);
  copies_.clear();
}

Status BlockList::Place(int64_t first, int64_t end, BlockMoves* moves) {
  if (!pool_->CanPlace()) return {};
  Placed wanted = {std::clamp<int64_t>(first, 0, size()), std::clamp<int64_t>(end, 0, size())};
  if (wanted.first >= wanted.end) wanted = {};
  if (placed_.known && placed_.first == wanted.first && placed_.end == wanted.end) return {};
  const Placed before = std::exchange(placed_, {0, 0, false});
  for (int64_t i = 0; i < size(); ++i) {
    void*& block = blocks_[static_cast<size_t>(i)];
    if (block == nullptr || (before.known && before.has(i) == wanted.has(i))) continue;
    const BlockPool::Where to = wanted.has(i) ? BlockPool::Where::kPlaced : BlockPool::Where::kHere;
    if (!before.known && pool_->WhereIs(block) == to) continue;
    KVG_ASSIGN(block, moves->Move(block, to));
  }
  placed_ = wanted;
  return {};
}

Status BlockList::Own(int64_t i) {
  if (KnownFrom(i)) return {};
  const int64_t known_at = pool_->retain_count();
  void* block = blocks_[static_cast<size_t>(i)];
  if (pool_->Shared(block)) {
    const int64_t size_bytes = pool_->BlockBytes(block);
    const BlockPool::Where where = pool_->WhereIs(block);
    void* copy = pool_->Allocate(size_bytes, where);
    if (copy == nullptr) return pool_->Refusal(size_bytes, where);
    pool_->ops().memory->Copy(pool_->Bytes(block, size_bytes), pool_->Bytes(copy, size_bytes));
    pool_->Release(std::exchange(blocks_[static_cast<size_t>(i)], copy));
  }
  // Nothing is known yet of what follows, unless it is known from the next one on.
  if (i + 1 == size() || KnownFrom(i + 1)) {
    alone_from_ = i;
    alone_at_ = known_at;
  }
  return {};
}

Status BlockList::OwnFrom(int64_t first) {
  if (OwnsFrom(first)) return {};
  for (int64_t i = size() - 1; i >= first; --i) KVG_TRY(Own(i));
  return {};
}

bool BlockList::OwnsFrom(int64_t first) {
  if (first >= size() || KnownFrom(first)) return true;
  const int64_t known_at = pool_->retain_count();
  if (pool_->AnyShared(std::span(blocks_).subspan(static_cast<size_t>(first)))) return false;
  alone_from_ = first;
  alone_at_ = known_at;
  return true;
}

Tensor EntryArray::First(int64_t count) const {
  if (size_ == 0) return {};
  Tensor view = pool_->Bytes(memory_[0], count);
  view.dtype = dtype_;
  return view;
}

Status EntryArray::Reserve(int64_t size) {
  if (size == 0) return {};
  if (size <= room_) return memory_.Own(0);
  // Growth by whole pages of entries, later by shares: few moves, little unused.
  const int64_t step = std::max<int64_t>(kKvPageEntries, size / 32);
  BlockList grown(*pool_);
  KVG_TRY(grown.Push(4 * ((size + step - 1) / step * step)));
  if (size_ > 0) {
    pool_->ops().memory->Copy(pool_->Bytes(memory_[0], 4 * size_),
                              pool_->Bytes(grown[0], 4 * size_));
  }
  room_ = pool_->BlockBytes(grown[0]) / 4;
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
  if (count > 0 && pool_->OnHost()) {
    auto* numbers = static_cast<int32_t*>(memory_[0]);  // f32 as bits
    const int32_t* kept = index.i32();
    int64_t i = 0;
    while (i < count && kept[i] == i) ++i;
    // What stays behind a stretch that goes moves at once: it ascends, so its ends tell.
    if (i < count && kept[count - 1] - kept[i] == count - 1 - i) {
      std::memmove(numbers + i, numbers + kept[i],
                   static_cast<size_t>(count - i) * sizeof(int32_t));
      i = count;
    }
    for (; i < count; ++i) numbers[i] = numbers[kept[i]];
  } else if (count > 0) {
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
