// SPDX-License-Identifier: Apache-2.0
// The memory of one tier, in reference-counted blocks cut from slabs by size class.
//
// Blocks of a class come from slabs of that class; an empty slab returns to the system. Large ones
// on the host are kept for later slabs instead, because memory that was touched before is cheaper.
// A slab is small compared with the used memory of its class, so that resident bytes stay near the
// used ones. This allocator counts used, resident and peak bytes. Its tables are beside the memory,
// never in it, because the host may be unable to read a device's memory. Sequences of several tasks
// may use one pool.
//
// Blocks of a device may also be placed in the memory of the host, from slabs of their own
// (MemoryOps::AllocateOnHost). Operations take them as all others; their bytes are counted apart.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "kernels/ops.h"
#include "methods/stages.h"

namespace kvgauge {

std::string_view NameOf(Tier tier);

class BlockPool {
 public:
  // limit_bytes bounds the resident bytes; 0: no limit. Slabs are memory of `ops` (kDevice), of the
  // host (kHost), or a file under `directory` that is unlinked at once and mapped (kDisk).
  BlockPool(Tier tier, Ops& ops, int64_t limit_bytes = 0, std::string directory = {});
  // Precondition: every block was released.
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Zero-filled, 64-byte aligned, one reference; null when the limit or the machine has no more.
  // The limit is that of the device: it does not count placed blocks.
  enum class Where { kHere, kPlaced };
  void* Allocate(int64_t size_bytes, Where where = Where::kHere);
  // Whether blocks can be placed: the pool's memory is a device's. Elsewhere nothing ever is.
  bool CanPlace() const { return !OnHost(); }
  Where WhereIs(const void* block) const;
  // All of these ignore null. Lists are handled at once, because neighbours are mostly in one slab.
  void Retain(void* block) { Retain(std::span(&block, 1)); }
  void Retain(std::span<void* const> blocks);
  void Release(void* block) { Release(std::span(&block, 1)); }
  void Release(std::span<void* const> blocks);
  // Whether one of them has more than one reference.
  bool Shared(void* block) const { return AnyShared(std::span(&block, 1)); }
  bool AnyShared(std::span<void* const> blocks) const;
  // The size, rounded to its class.
  int64_t BlockBytes(void* block) const { return BytesOf(std::span(&block, 1)); }
  // The bytes of all of them, or of those that lie there; a block that occurs several times in
  // succession counts once.
  int64_t BytesOf(std::span<void* const> blocks, std::optional<Where> where = {}) const;
  // How often references to held blocks were taken. While this number is unchanged, a block that
  // had one reference still has only that one.
  int64_t retain_count() const { return retain_count_.load(std::memory_order_relaxed); }
  // The size to which Allocate rounds: a multiple of 64 within 1/32 of the request.
  static int64_t ClassBytes(int64_t size_bytes);

  Tier tier() const { return tier_; }
  Ops& ops() const { return *ops_; }
  // Whether the host may read and write the memory.
  bool OnHost() const { return tier_ != Tier::kDevice || ops_->device == Device::kHost; }
  // A view of a block's memory.
  Tensor Bytes(void* block, int64_t size_bytes) const;

  int64_t used_bytes() const { return Locked(used_bytes_); }          // blocks handed out
  int64_t resident_bytes() const { return Locked(resident_bytes_); }  // slabs held
  int64_t peak_bytes() const { return Locked(peak_bytes_); }          // most ever resident
  // The same of placed blocks, which the numbers above do not count.
  int64_t placed_used_bytes() const { return Locked(placed_used_bytes_); }
  int64_t placed_bytes() const { return Locked(placed_bytes_); }
  int64_t placed_peak_bytes() const { return Locked(placed_peak_bytes_); }
  // Kept for later slabs and not counted as resident; always 0 with a limit.
  int64_t spare_bytes() const;
  int64_t limit_bytes() const { return limit_bytes_; }
  // The error of a refused request of `size_bytes`: names the request and the free bytes.
  Error Refusal(int64_t size_bytes, Where where = Where::kHere) const;

 private:
  struct Slab {
    Buffer memory;
    Where where = Where::kHere;
    int64_t block_bytes = 0;
    std::vector<int32_t> references;  // [blocks], 0: free
    std::vector<uint64_t> free;       // bit set: free
    std::vector<bool> dirty;          // was handed out before
    int64_t used = 0;
    int64_t number = 0;  // in order of creation
    int64_t blocks() const { return static_cast<int64_t>(references.size()); }
  };
  struct SizeClass {
    int64_t used_bytes = 0;
    std::map<int64_t, Slab*> open;  // with free blocks, oldest first
  };
  using ClassKey = std::pair<Where, int64_t>;  // and the bytes of a block

  std::unique_lock<std::mutex> Lock() const;
  int64_t Locked(const int64_t& count) const {
    const std::unique_lock<std::mutex> lock = Lock();
    return count;
  }
  // The mutex is held where these are called.
  bool SetsAside(int64_t slab_bytes) const;
  Slab* AddSlab(int64_t block_bytes);
  Slab* AddPlacedSlab(int64_t block_bytes);
  Slab* AddSlabOf(Buffer memory, int64_t blocks, const ClassKey& key, bool used_before);
  Buffer DeviceMemory(int64_t size_bytes) const;
  Buffer MapMemory(int64_t size_bytes) const;
  Buffer MapFile(int64_t size_bytes) const;
  void Clear(void* block, int64_t size_bytes);
  // The slab that holds the block, and which of its blocks it is; `near` is tried first, and set.
  Slab& Find(const void* block, Slab*& near, int64_t* index) const;
  void Free(Slab& slab, int64_t index);

  Tier tier_;
  Ops* ops_;
  int64_t limit_bytes_;
  std::string directory_;
  int64_t used_bytes_ = 0, resident_bytes_ = 0, peak_bytes_ = 0;
  int64_t placed_used_bytes_ = 0, placed_bytes_ = 0, placed_peak_bytes_ = 0;
  int64_t slab_count_ = 0;
  std::vector<Buffer> spare_;                         // of the largest slab's size
  std::map<uintptr_t, std::unique_ptr<Slab>> slabs_;  // by address
  std::map<ClassKey, SizeClass> classes_;
  std::atomic<int64_t> retain_count_ = 0;
  mutable std::mutex mutex_;  // guards everything that changes
  Buffer zeros_;              // the source for clearing a device block
};

class RopeTablesStore;

// What the caches of one model share: a pool for each tier, and the angles that keys turn to; of
// each device where its layers lie on several.
class CachePools {
 public:
  struct Limits {
    int64_t device_bytes = 0, host_bytes = 0, disk_bytes = 0;
    std::string directory;  // of the disk tier; empty: the system's temporary one
  };
  explicit CachePools(Ops& ops) : CachePools(ops, Limits()) {}
  CachePools(Ops& ops, const Limits& limits);
  // `device_bytes`: the limit of each device; empty: none.
  CachePools(std::span<Ops* const> devices, std::span<const int64_t> device_bytes);

  // The first device's.
  BlockPool& of(Tier tier) { return pools_[static_cast<size_t>(tier)]; }
  RopeTablesStore& rope_tables() { return *rope_tables_; }
  // The same of a device, counted from 0.
  CachePools& on(size_t device) { return device == 0 ? *this : *others_.at(device - 1); }

 private:
  std::array<BlockPool, 3> pools_;
  std::shared_ptr<RopeTablesStore> rope_tables_;
  std::vector<std::unique_ptr<CachePools>> others_;
};

}  // namespace kvgauge
