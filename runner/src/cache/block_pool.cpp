// SPDX-License-Identifier: Apache-2.0
#include "runner/block_pool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>

#include "core/strings.h"
#include "src/cache/rope_tables.h"

namespace kvgauge {
namespace {

constexpr int64_t kAlignment = 64;
// A new slab is this fraction of what its class uses, within these bounds.
constexpr int64_t kSlabFraction = 32;
constexpr int64_t kMaxSlabBytes = int64_t{2} << 20;
// Below this a system call, or a device's own granularity, would cost more than the memory.
constexpr int64_t kMinHostSlabBytes = int64_t{4} << 10;
constexpr int64_t kMinFileSlabBytes = int64_t{256} << 10;
constexpr int64_t kMinDeviceSlabBytes = int64_t{2} << 20;
constexpr int64_t kZeroBytes = int64_t{64} << 10;

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

void FreeHeap(void* data, int64_t) { std::free(data); }
void FreeMapped(void* data, int64_t size_bytes) { munmap(data, static_cast<size_t>(size_bytes)); }

}  // namespace

std::string_view NameOf(Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kDisk:
      return "disk";
  }
  CheckFailed(__FILE__, __LINE__, "tier", "unknown tier");
}

BlockPool::BlockPool(Tier tier, Ops& ops, int64_t limit_bytes, std::string directory)
    : tier_(tier), ops_(&ops), limit_bytes_(limit_bytes), directory_(std::move(directory)) {
  KVG_CHECK(limit_bytes >= 0, "negative limit");
}

BlockPool::~BlockPool() { KVG_CHECK(used_bytes_ == 0, "a block outlives its pool"); }

int64_t BlockPool::ClassBytes(int64_t size_bytes) {
  const int64_t size = std::max(RoundUp(size_bytes, kAlignment), kAlignment);
  const auto top = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size)));
  return RoundUp(size, std::max(top / 32, kAlignment));
}

Tensor BlockPool::Bytes(void* block, int64_t size_bytes) const {
  const Device device = tier_ == Tier::kDevice ? ops_->device : Device::kHost;
  return Tensor(block, DType::kU8, {size_bytes}, device);
}

// What is done under the lock takes less than a sleep: who finds it taken looks again for a while.
std::unique_lock<std::mutex> BlockPool::Lock() const {
  constexpr int kLooks = 200;
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  for (int i = 0; i < kLooks && !lock.owns_lock(); ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    static_cast<void>(lock.try_lock());
  }
  if (!lock.owns_lock()) lock.lock();
  return lock;
}

void* BlockPool::Allocate(int64_t size_bytes, Where where) {
  KVG_CHECK(size_bytes > 0, "a block holds something");
  KVG_CHECK(where == Where::kHere || CanPlace(), "only a device's blocks are placed");
  const int64_t block_bytes = ClassBytes(size_bytes);
  const std::unique_lock<std::mutex> lock = Lock();
  SizeClass& size_class = classes_[{where, block_bytes}];
  Slab* slab = !size_class.open.empty() ? size_class.open.begin()->second
               : where == Where::kHere  ? AddSlab(block_bytes)
                                        : AddPlacedSlab(block_bytes);
  if (slab == nullptr) return nullptr;
  size_t word = 0;
  while (slab->free[word] == 0) ++word;
  const int64_t index = static_cast<int64_t>(word) * 64 + std::countr_zero(slab->free[word]);
  slab->free[word] &= slab->free[word] - 1;
  slab->references[static_cast<size_t>(index)] = 1;
  if (++slab->used == slab->blocks()) size_class.open.erase(slab->number);
  size_class.used_bytes += block_bytes;
  (where == Where::kHere ? used_bytes_ : placed_used_bytes_) += block_bytes;
  void* block = static_cast<char*>(slab->memory.data()) + index * block_bytes;
  if (slab->dirty[static_cast<size_t>(index)]) Clear(block, block_bytes);
  slab->dirty[static_cast<size_t>(index)] = true;
  return block;
}

bool BlockPool::SetsAside(int64_t slab_bytes) const {
  const bool host =
      tier_ == Tier::kHost || (tier_ == Tier::kDevice && ops_->device == Device::kHost);
  return host && limit_bytes_ == 0 && slab_bytes == kMaxSlabBytes;
}

int64_t BlockPool::spare_bytes() const {
  const std::unique_lock<std::mutex> lock = Lock();
  return std::ssize(spare_) * kMaxSlabBytes;
}

BlockPool::Slab* BlockPool::AddSlab(int64_t block_bytes) {
  const SizeClass& size_class = classes_[{Where::kHere, block_bytes}];
  const bool foreign = !OnHost();
  int64_t least = foreign                ? kMinDeviceSlabBytes
                  : tier_ == Tier::kDisk ? kMinFileSlabBytes
                                         : kMinHostSlabBytes;
  // No class may take what others need of a small pool.
  if (limit_bytes_ > 0) {
    least = std::min(least, std::max(limit_bytes_ / kSlabFraction, kMinHostSlabBytes));
  }
  const int64_t wanted =
      std::clamp(size_class.used_bytes / kSlabFraction, least, std::max(least, kMaxSlabBytes));
  int64_t blocks = std::max<int64_t>(wanted / block_bytes, 1);
  if (limit_bytes_ > 0) blocks = std::min(blocks, (limit_bytes_ - resident_bytes_) / block_bytes);
  if (blocks < 1) return nullptr;
  if (foreign && zeros_.data() == nullptr) {
    zeros_ = DeviceMemory(kZeroBytes);
    if (zeros_.data() == nullptr) return nullptr;
  }
  int64_t size_bytes = blocks * block_bytes;
  const bool used_before = SetsAside(size_bytes) && !spare_.empty();
  Buffer memory;
  if (used_before) {
    memory = std::move(spare_.back());
    spare_.pop_back();
  } else {
    memory = foreign                ? DeviceMemory(size_bytes)
             : tier_ == Tier::kDisk ? MapFile(size_bytes)
                                    : MapMemory(size_bytes);
    if (foreign && memory.data() == nullptr && blocks > 1) {
      // The last of a device's memory goes out by the block.
      blocks = 1;
      size_bytes = block_bytes;
      memory = DeviceMemory(size_bytes);
    }
  }
  if (memory.data() == nullptr) return nullptr;
  resident_bytes_ += size_bytes;
  peak_bytes_ = std::max(peak_bytes_, resident_bytes_);
  return AddSlabOf(std::move(memory), blocks, {Where::kHere, block_bytes}, used_before);
}

// To lock pages takes a call of the system that waits for the device: larger slabs than elsewhere.
BlockPool::Slab* BlockPool::AddPlacedSlab(int64_t block_bytes) {
  constexpr int64_t kLeastBytes = int64_t{2} << 20, kMostBytes = int64_t{64} << 20;
  constexpr int64_t kFraction = 8;
  if (zeros_.data() == nullptr) {
    zeros_ = DeviceMemory(kZeroBytes);
    if (zeros_.data() == nullptr) return nullptr;
  }
  const ClassKey key = {Where::kPlaced, block_bytes};
  const int64_t wanted = std::clamp(classes_[key].used_bytes / kFraction, kLeastBytes, kMostBytes);
  // The last of it goes out by the block.
  for (const int64_t blocks : {std::max<int64_t>(wanted / block_bytes, 1), int64_t{1}}) {
    try {
      Buffer memory = ops_->memory->AllocateOnHost(blocks * block_bytes);
      placed_bytes_ += blocks * block_bytes;
      placed_peak_bytes_ = std::max(placed_peak_bytes_, placed_bytes_);
      return AddSlabOf(std::move(memory), blocks, key, false);
    } catch (const std::bad_alloc&) {
      continue;
    }
  }
  return nullptr;  // the host has no more to lock, which is the caller's to report
}

BlockPool::Slab* BlockPool::AddSlabOf(Buffer memory, int64_t blocks, const ClassKey& key,
                                      bool used_before) {
  auto slab = std::make_unique<Slab>();
  slab->memory = std::move(memory);
  slab->where = key.first;
  slab->block_bytes = key.second;
  slab->references.resize(static_cast<size_t>(blocks));
  slab->dirty.assign(static_cast<size_t>(blocks), used_before);
  slab->free.assign(static_cast<size_t>((blocks + 63) / 64), ~uint64_t{0});
  if (blocks % 64 != 0) slab->free.back() = (uint64_t{1} << (blocks % 64)) - 1;
  slab->number = slab_count_++;
  Slab* added = slab.get();
  classes_[key].open.emplace(slab->number, added);
  slabs_.emplace(reinterpret_cast<uintptr_t>(slab->memory.data()), std::move(slab));
  return added;
}

Buffer BlockPool::DeviceMemory(int64_t size_bytes) const {
  try {
    return ops_->memory->Allocate(size_bytes);
  } catch (const std::bad_alloc&) {
    return {};  // the device is full, which is the caller's to report
  }
}

Buffer BlockPool::MapMemory(int64_t size_bytes) const {
  // Small slabs would waste the rest of a page.
  if (size_bytes < kMaxSlabBytes) {
    void* data = std::aligned_alloc(kAlignment, static_cast<size_t>(size_bytes));
    if (data == nullptr) return {};
    std::memset(data, 0, static_cast<size_t>(size_bytes));
    return {data, size_bytes, Device::kHost, FreeHeap};
  }
  void* data = mmap(nullptr, static_cast<size_t>(size_bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return {};
  madvise(data, static_cast<size_t>(size_bytes), MADV_HUGEPAGE);
  return {data, size_bytes, Device::kHost, FreeMapped};
}

Buffer BlockPool::MapFile(int64_t size_bytes) const {
  std::error_code failed;
  std::string pattern = directory_;
  if (pattern.empty()) pattern = std::filesystem::temp_directory_path(failed).string();
  pattern += "/kvgauge_cache_XXXXXX";
  const int file = mkstemp(pattern.data());
  if (file < 0) return {};
  unlink(pattern.c_str());
  // A sparse file would promise room that a full disk does not have.
  void* data = MAP_FAILED;
  if (posix_fallocate(file, 0, size_bytes) == 0) {
    data =
        mmap(nullptr, static_cast<size_t>(size_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (data == MAP_FAILED) return {};
  return {data, size_bytes, Device::kHost, FreeMapped};
}

void BlockPool::Clear(void* block, int64_t size_bytes) {
  if (OnHost()) {
    std::memset(block, 0, static_cast<size_t>(size_bytes));
    return;
  }
  for (int64_t done = 0; done < size_bytes; done += kZeroBytes) {
    const int64_t count = std::min(kZeroBytes, size_bytes - done);
    ops_->memory->Copy(zeros_.As(DType::kU8, {count}),
                       Bytes(static_cast<char*>(block) + done, count));
  }
}

BlockPool::Slab& BlockPool::Find(const void* block, Slab*& near, int64_t* index) const {
  const auto address = reinterpret_cast<uintptr_t>(block);
  const auto offset = [&](const Slab& slab) {
    return static_cast<int64_t>(address - reinterpret_cast<uintptr_t>(slab.memory.data()));
  };
  const auto holds = [&](const Slab& slab) {
    return address >= reinterpret_cast<uintptr_t>(slab.memory.data()) &&
           offset(slab) < slab.blocks() * slab.block_bytes;
  };
  if (near == nullptr || !holds(*near)) {
    auto after = slabs_.upper_bound(address);
    KVG_CHECK(after != slabs_.begin(), "not a block of this pool");
    near = std::prev(after)->second.get();
  }
  Slab& slab = *near;
  KVG_CHECK(holds(slab) && offset(slab) % slab.block_bytes == 0, "not a block of this pool");
  *index = offset(slab) / slab.block_bytes;
  KVG_CHECK(slab.references[static_cast<size_t>(*index)] > 0, "the block was released");
  return slab;
}

void BlockPool::Retain(std::span<void* const> blocks) {
  const std::unique_lock<std::mutex> lock = Lock();
  Slab* near = nullptr;
  for (void* block : blocks) {
    if (block == nullptr) continue;
    int64_t index = 0;
    Slab& slab = Find(block, near, &index);
    ++slab.references[static_cast<size_t>(index)];
    retain_count_.fetch_add(1, std::memory_order_relaxed);
  }
}

void BlockPool::Release(std::span<void* const> blocks) {
  const std::unique_lock<std::mutex> lock = Lock();
  Slab* near = nullptr;
  for (void* block : blocks) {
    if (block == nullptr) continue;
    int64_t index = 0;
    Slab& slab = Find(block, near, &index);
    if (--slab.references[static_cast<size_t>(index)] > 0) continue;
    if (slab.used == 1) near = nullptr;  // goes with its last block
    Free(slab, index);
  }
}

void BlockPool::Free(Slab& slab, int64_t index) {
  slab.free[static_cast<size_t>(index / 64)] |= uint64_t{1} << (index % 64);
  const bool here = slab.where == Where::kHere;
  SizeClass& size_class = classes_[{slab.where, slab.block_bytes}];
  if (slab.used == slab.blocks()) size_class.open.emplace(slab.number, &slab);
  size_class.used_bytes -= slab.block_bytes;
  (here ? used_bytes_ : placed_used_bytes_) -= slab.block_bytes;
  if (--slab.used > 0) return;
  size_class.open.erase(slab.number);
  (here ? resident_bytes_ : placed_bytes_) -= slab.blocks() * slab.block_bytes;
  const auto address = reinterpret_cast<uintptr_t>(slab.memory.data());
  if (here && SetsAside(slab.memory.size_bytes())) spare_.push_back(std::move(slab.memory));
  slabs_.erase(address);
}

bool BlockPool::AnyShared(std::span<void* const> blocks) const {
  const std::unique_lock<std::mutex> lock = Lock();
  Slab* near = nullptr;
  return std::any_of(blocks.begin(), blocks.end(), [&](const void* block) {
    int64_t index = 0;
    return block != nullptr && Find(block, near, &index).references[static_cast<size_t>(index)] > 1;
  });
}

BlockPool::Where BlockPool::WhereIs(const void* block) const {
  if (!CanPlace()) return Where::kHere;
  const std::unique_lock<std::mutex> lock = Lock();
  Slab* near = nullptr;
  int64_t index = 0;
  return Find(block, near, &index).where;
}

int64_t BlockPool::BytesOf(std::span<void* const> blocks, std::optional<Where> where) const {
  const std::unique_lock<std::mutex> lock = Lock();
  Slab* near = nullptr;
  int64_t bytes = 0, index = 0;
  const void* last = nullptr;
  for (const void* block : blocks) {
    if (block != nullptr && block != last) {
      const Slab& slab = Find(block, near, &index);
      if (!where || slab.where == *where) bytes += slab.block_bytes;
    }
    last = block;
  }
  return bytes;
}

Error BlockPool::Refusal(int64_t size_bytes, Where where) const {
  const std::unique_lock<std::mutex> lock = Lock();
  if (where == Where::kPlaced) {
    return ResourceError(StrCat("page-locked host memory for the cache: the system refused ",
                                HumanBytes(ClassBytes(size_bytes)), " more, ",
                                HumanBytes(placed_bytes_),
                                " are held; lower place.share, raise place.recent or what the "
                                "system lets a process lock, or run fewer sequences at a time"));
  }
  const std::string place = StrCat(NameOf(tier_), " memory for the cache");
  const int64_t asked = ClassBytes(size_bytes);
  if (limit_bytes_ > 0) {
    return ResourceError(StrCat(place, ": ", HumanBytes(asked), " more were asked for, ",
                                HumanBytes(limit_bytes_ - resident_bytes_), " of the limit of ",
                                HumanBytes(limit_bytes_), " are free (", HumanBytes(used_bytes_),
                                " in use); raise the limit or run fewer sequences at a time"));
  }
  return ResourceError(StrCat(place, ": the system refused ", HumanBytes(asked), " more, ",
                              HumanBytes(resident_bytes_), " are held",
                              tier_ == Tier::kDisk && !directory_.empty() ? " under " : "",
                              tier_ == Tier::kDisk ? directory_ : ""));
}

CachePools::CachePools(Ops& ops, const Limits& limits)
    : pools_{BlockPool(Tier::kDevice, ops, limits.device_bytes),
             BlockPool(Tier::kHost, ops, limits.host_bytes),
             BlockPool(Tier::kDisk, ops, limits.disk_bytes, limits.directory)},
      rope_tables_(std::make_shared<RopeTablesStore>()) {}

namespace {

CachePools::Limits LimitsOf(std::span<const int64_t> device_bytes, size_t device) {
  CachePools::Limits limits;
  if (!device_bytes.empty()) limits.device_bytes = device_bytes[device];
  return limits;
}

}  // namespace

CachePools::CachePools(std::span<Ops* const> devices, std::span<const int64_t> device_bytes)
    : CachePools(*devices[0], LimitsOf(device_bytes, 0)) {
  for (size_t i = 1; i < devices.size(); ++i) {
    others_.push_back(std::make_unique<CachePools>(*devices[i], LimitsOf(device_bytes, i)));
  }
}

}  // namespace kvgauge
