// SPDX-License-Identifier: Apache-2.0
// What a cache holds of a pool: lists of blocks and arrays of entries. Copies share blocks; whoever
// writes asks for its own first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/result.h"
#include "kernels/attention.h"
#include "runner/block_pool.h"

namespace kvgauge {

inline int64_t PagesOf(int64_t entries) { return (entries + kKvPageEntries - 1) / kKvPageEntries; }

// Blocks that move between the memories of a device and of the host. What lists had before is
// theirs until this is gone, and what they have then is copied by then.
class BlockMoves {
 public:
  explicit BlockMoves(BlockPool& pool) : pool_(&pool) {}
  BlockMoves(const BlockMoves&) = delete;
  BlockMoves& operator=(const BlockMoves&) = delete;
  ~BlockMoves();

  // One reference to what has the content of `block` in that memory, in exchange for one to it.
  // Lists that share a block share what it becomes.
  Result<void*> Move(void* block, BlockPool::Where to);
  // Copies what was moved so far.
  void Copy();

 private:
  BlockPool* pool_;
  std::unordered_map<void*, void*> moved_;
  std::vector<MemoryOps::CopyJob> copies_;
  std::vector<void*> left_;  // references to what was moved
};

// Blocks in the order of pages; null where a page needs none. Holds one reference to each.
class BlockList {
 public:
  explicit BlockList(BlockPool& pool) : pool_(&pool) {}
  BlockList(const BlockList& other)
      : pool_(other.pool_), blocks_(other.blocks_), placed_(other.placed_) {
    if (!blocks_.empty()) pool_->Retain(blocks_);
  }
  BlockList(BlockList&& other) noexcept
      : pool_(other.pool_),
        blocks_(std::exchange(other.blocks_, {})),
        placed_(other.placed_),
        alone_from_(other.alone_from_),
        alone_at_(other.alone_at_) {}
  BlockList& operator=(BlockList other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(blocks_, other.blocks_);
    std::swap(placed_, other.placed_);
    std::swap(alone_from_, other.alone_from_);
    std::swap(alone_at_, other.alone_at_);
    return *this;
  }
  ~BlockList() {
    if (!blocks_.empty()) pool_->Release(blocks_);
  }

  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  void* const* data() const { return blocks_.data(); }
  void* operator[](int64_t i) const { return blocks_[static_cast<size_t>(i)]; }

  // Blocks [first, end) come to lie in the memory of the host, and no others: nothing where the
  // pool's own memory is that. After an error some have moved.
  Status Place(int64_t first, int64_t end, BlockMoves* moves);

  Status Push(int64_t size_bytes) {
    void* block = pool_->Allocate(size_bytes);
    if (block == nullptr) return pool_->Refusal(size_bytes);
    blocks_.push_back(block);
    return {};
  }
  void PushNull() { blocks_.push_back(nullptr); }
  // A new block at i, where there was none.
  Status Put(int64_t i, int64_t size_bytes) {
    void* block = pool_->Allocate(size_bytes);
    if (block == nullptr) return pool_->Refusal(size_bytes);
    pool_->Release(std::exchange(blocks_[static_cast<size_t>(i)], block));
    if (placed_.has(i)) placed_.known = false;
    return {};
  }
  // One more reference to a block of the same pool.
  void PushShared(void* block) {
    pool_->Retain(block);
    blocks_.push_back(block);
    placed_.known = false;
  }
  // Makes block i this list's alone.
  Status Own(int64_t i);
  Status OwnFrom(int64_t first);
  // Whether the blocks from `first` on are this list's alone.
  bool OwnsFrom(int64_t first);
  bool Owns(int64_t i) const {
    return KnownFrom(i) || !pool_->Shared(blocks_[static_cast<size_t>(i)]);
  }
  // Puts `block` at i, with one more reference, and releases what was there.
  void SetShared(int64_t i, void* block) {
    pool_->Retain(block);
    pool_->Release(std::exchange(blocks_[static_cast<size_t>(i)], block));
    if (block != nullptr) placed_.known = false;
  }
  void Drop(int64_t i) { SetShared(i, nullptr); }
  void Truncate(int64_t size) {
    if (size >= this->size()) return;
    pool_->Release(std::span(blocks_).subspan(static_cast<size_t>(size)));
    blocks_.resize(static_cast<size_t>(size));
    placed_ = {std::min(placed_.first, size), std::min(placed_.end, size), placed_.known};
  }
  void DropFront(int64_t count) {
    if (count == 0) return;
    pool_->Release(std::span(blocks_).first(static_cast<size_t>(count)));
    blocks_.erase(blocks_.begin(), blocks_.begin() + count);
    alone_from_ = std::max<int64_t>(0, alone_from_ - count);
    placed_ = {std::max<int64_t>(0, placed_.first - count),
               std::max<int64_t>(0, placed_.end - count), placed_.known};
  }
  // As allocated; a block that lies at several places counts once where those are neighbours.
  int64_t allocated_bytes() const { return blocks_.empty() ? 0 : pool_->BytesOf(blocks_); }
  // What of it lies in the memory of the host by Place.
  int64_t placed_bytes() const {
    return blocks_.empty() ? 0 : pool_->BytesOf(blocks_, BlockPool::Where::kPlaced);
  }

 private:
  bool KnownFrom(int64_t i) const { return i >= alone_from_ && alone_at_ == pool_->retain_count(); }

  // Which blocks lie in the memory of the host, if that is known without asking the pool.
  struct Placed {
    int64_t first = 0, end = 0;
    bool known = true;
    bool has(int64_t i) const { return i >= first && i < end; }
  };

  BlockPool* pool_;
  std::vector<void*> blocks_;
  Placed placed_;
  // Blocks from this one on were this list's alone at that count of the pool. What is put here
  // without a new count is this list's alone, too.
  int64_t alone_from_ = 0, alone_at_ = -1;
};

// One 4-byte number for each entry (f32 or i32), contiguous.
class EntryArray {
 public:
  EntryArray(BlockPool& pool, DType dtype) : memory_(pool), pool_(&pool), dtype_(dtype) {}

  bool empty() const { return size_ == 0; }
  int64_t size() const { return size_; }
  Tensor view() const { return First(size_); }
  // With the room behind the numbers, where anything may stand.
  Tensor roomy_view() const { return First(room_); }
  template <class T>
  const T* data() const {
    return size_ == 0 ? nullptr : static_cast<const T*>(memory_[0]);
  }

  // Room for `size` numbers, in memory that is not shared; what is held stays.
  Status Reserve(int64_t size);
  // Counts in `count` more numbers: where they lie, for the caller to copy there. Precondition:
  // room was made for all of them.
  Tensor Extend(int64_t count);
  // The same, copied.
  void Append(std::span<const int32_t> numbers) { AppendBits(numbers.data(), std::ssize(numbers)); }
  void Append(std::span<const float> numbers) { AppendBits(numbers.data(), std::ssize(numbers)); }
  Status Assign(std::span<const int32_t> numbers) {
    return AssignBits(numbers.data(), std::ssize(numbers));
  }
  Status Assign(std::span<const float> numbers) {
    return AssignBits(numbers.data(), std::ssize(numbers));
  }
  void Truncate(int64_t size) { size_ = std::min(size_, size); }
  // Only these of the numbers, in place. index: [n] i32, ascending, on the pool's device; `spare`
  // holds 4 bytes for each of them where that is not the host. Precondition: Reserve made the
  // memory its own.
  void Keep(const Tensor& index, const Buffer& spare);
  template <class T>
  std::vector<T> ToHost() const {
    std::vector<T> numbers(static_cast<size_t>(size_));
    if (size_ > 0) Fetch(numbers.data());
    return numbers;
  }

  int64_t bytes() const { return 4 * size_; }
  int64_t allocated_bytes() const { return memory_.allocated_bytes(); }

 private:
  Tensor First(int64_t count) const;
  void AppendBits(const void* numbers, int64_t count);
  Status AssignBits(const void* numbers, int64_t count);
  void Fetch(void* out) const;

  BlockList memory_;  // none or one
  int64_t room_ = 0;  // numbers it has room for
  BlockPool* pool_;
  DType dtype_;
  int64_t size_ = 0;
};

}  // namespace kvgauge
