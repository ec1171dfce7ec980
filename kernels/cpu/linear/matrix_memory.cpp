// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear/matrix_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>

namespace kvgauge {
namespace {

constexpr int64_t kAlignment = 64, kPageBytes = 4096;
constexpr int64_t kHugeBytes = int64_t{2} << 20;
// Addresses alone are taken so far ahead; memory that may be used, so far.
constexpr int64_t kReservedBytes = int64_t{64} << 30;
constexpr int64_t kStepBytes = int64_t{64} << 20;
// Smaller ones would waste pages.
constexpr int64_t kSmallest = int64_t{64} << 10;

int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

void Unmap(void* data, int64_t size_bytes) { munmap(data, static_cast<size_t>(size_bytes)); }

// Addresses are never used twice: what is freed goes back to the system.
class Region {
 public:
  // Null where the system gives none.
  char* Take(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (end_ - next_ < bytes && !Reserve(bytes)) return nullptr;
    if (usable_ - next_ < bytes) {
      const int64_t more = std::min(RoundUp(bytes - (usable_ - next_), kStepBytes), end_ - usable_);
      if (mprotect(usable_, static_cast<size_t>(more), PROT_READ | PROT_WRITE) != 0) return nullptr;
      madvise(usable_, static_cast<size_t>(more), MADV_HUGEPAGE);
      usable_ += more;
    }
    char* const data = next_;
    next_ += bytes;
    return data;
  }

 private:
  bool Reserve(int64_t bytes) {
    const int64_t size = std::max(kReservedBytes, RoundUp(bytes, kHugeBytes));
    void* all = mmap(nullptr, static_cast<size_t>(size + kHugeBytes), PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return false;
    if (next_ != end_) munmap(next_, static_cast<size_t>(end_ - next_));
    char* const data = static_cast<char*>(all);
    const auto over = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % kHugeBytes);
    next_ = usable_ = over == 0 ? data : data + kHugeBytes - over;
    end_ = next_ + size;
    return true;
  }

  std::mutex mutex_;
  char* next_ = nullptr;
  char* usable_ = nullptr;  // up to here
  char* end_ = nullptr;
};

}  // namespace

Buffer MatrixBuffer(int64_t size_bytes) {
  static Region& region = *new Region;  // outlives matrices of static objects
  if (size_bytes >= kSmallest) {
    char* const data = region.Take(RoundUp(size_bytes, kPageBytes));
    if (data != nullptr) {
      return {data, RoundUp(size_bytes, kAlignment), Device::kHost, Unmap};
    }
  }
  return HostBuffer(size_bytes);
}

}  // namespace kvgauge
