// SPDX-License-Identifier: Apache-2.0
#include "cuda/device/mapped.h"

#include <atomic>
#include <map>
#include <mutex>

#include "core/check.h"
#include "cuda/device/driver.h"
#include "cuda/device/graph_recorder.h"

namespace kvgauge::cuda {
namespace {

struct MappedRanges {
  std::mutex mutex;
  std::map<uintptr_t, uintptr_t> end_of;  // by where they begin
  std::atomic<int64_t> count = 0, writes = 0;
};

MappedRanges& Ranges() {
  // Lives as long as the process: buffers of static lifetime are freed late.
  static auto* ranges = new MappedRanges();
  return *ranges;
}

}  // namespace

void* TakeMapped(int64_t size_bytes) {
  void* const data = MallocMapped(size_bytes);
  if (data == nullptr) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  MappedRanges& ranges = Ranges();
  const std::lock_guard lock(ranges.mutex);
  ranges.end_of[begin] = begin + static_cast<uintptr_t>(size_bytes);
  ++ranges.count;
  return data;
}

void GiveMapped(void* data) {
  KVG_CHECK(Recorder::Open() == nullptr, "memory of the host is freed while work is recorded");
  MappedRanges& ranges = Ranges();
  {
    const std::lock_guard lock(ranges.mutex);
    KVG_CHECK(ranges.end_of.erase(reinterpret_cast<uintptr_t>(data)) == 1, "not mapped memory");
    --ranges.count;
  }
  FreeMapped(data);
}

bool AnyMapped() { return Ranges().count > 0; }

void NoteWriteToMapped() { ++Ranges().writes; }
int64_t WritesToMapped() { return Ranges().writes; }

void MappedLookup::Find(uintptr_t address) {
  MappedRanges& ranges = Ranges();
  const std::lock_guard lock(ranges.mutex);
  const auto after = ranges.end_of.upper_bound(address);
  end_ = after == ranges.end_of.end() ? UINTPTR_MAX : after->first;
  begin_ = 0;
  holds_ = false;
  if (after == ranges.end_of.begin()) return;
  const auto& [begin, end] = *std::prev(after);
  holds_ = address < end;
  begin_ = holds_ ? begin : end;
  if (holds_) end_ = end;
}

}  // namespace kvgauge::cuda
