// SPDX-License-Identifier: Apache-2.0
#include "cuda/device/mapped.h"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "core/check.h"
#include "cuda/device/driver.h"

namespace kvgauge::cuda {
namespace {

struct Range {
  uintptr_t end;
  int64_t allocated_bytes;  // at least as many as were asked for
  Stream stream;            // of the device that it was taken for
};

struct MappedRanges {
  std::mutex mutex;
  std::map<uintptr_t, Range> taken;                        // by where they begin
  std::multimap<std::pair<Stream, int64_t>, void*> spare;  // by stream and size
  std::atomic<int64_t> count = 0, bytes = 0, writes = 0;
};

MappedRanges& Ranges() {
  // Lives as long as the process: buffers of static lifetime are freed late.
  static auto* ranges = new MappedRanges();
  return *ranges;
}

// Memory that was given back, and its size; null: none fits.
std::pair<void*, int64_t> TakeSpare(MappedRanges& ranges, int64_t size_bytes, Stream stream) {
  const std::lock_guard lock(ranges.mutex);
  const auto found = ranges.spare.lower_bound({stream, size_bytes});
  if (found == ranges.spare.end() || found->first.first != stream ||
      found->first.second > size_bytes + size_bytes / 8) {
    return {};
  }
  const std::pair<void*, int64_t> spare = {found->second, found->first.second};
  ranges.spare.erase(found);
  return spare;
}

}  // namespace

void* TakeMapped(int64_t size_bytes, Stream stream) {
  MappedRanges& ranges = Ranges();
  auto [data, allocated_bytes] = TakeSpare(ranges, size_bytes, stream);
  if (data == nullptr) {
    allocated_bytes = size_bytes;
    data = MallocMapped(size_bytes);
  }
  if (data == nullptr) {
    DropSpareMapped();
    data = MallocMapped(size_bytes);
  }
  if (data == nullptr) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const std::lock_guard lock(ranges.mutex);
  ranges.taken[begin] = {begin + static_cast<uintptr_t>(size_bytes), allocated_bytes, stream};
  ranges.bytes += size_bytes;
  ++ranges.count;
  return data;
}

void GiveMapped(void* data) {
  MappedRanges& ranges = Ranges();
  const std::lock_guard lock(ranges.mutex);
  const auto found = ranges.taken.find(reinterpret_cast<uintptr_t>(data));
  KVG_CHECK(found != ranges.taken.end(), "not mapped memory");
  ranges.bytes -= static_cast<int64_t>(found->second.end - found->first);
  --ranges.count;
  ranges.spare.emplace(std::pair(found->second.stream, found->second.allocated_bytes), data);
  ranges.taken.erase(found);
}

void DropSpareMapped() {
  MappedRanges& ranges = Ranges();
  const std::lock_guard lock(ranges.mutex);
  for (const auto& [size, data] : ranges.spare) FreeMapped(data);
  ranges.spare.clear();
}

int64_t MappedBytesTaken() { return Ranges().bytes; }

bool AnyMapped() { return Ranges().count > 0; }

void NoteWriteToMapped() { ++Ranges().writes; }
int64_t WritesToMapped() { return Ranges().writes; }

void MappedLookup::Find(uintptr_t address) {
  MappedRanges& ranges = Ranges();
  const std::lock_guard lock(ranges.mutex);
  const auto after = ranges.taken.upper_bound(address);
  end_ = after == ranges.taken.end() ? UINTPTR_MAX : after->first;
  begin_ = 0;
  holds_ = false;
  if (after == ranges.taken.begin()) return;
  const auto& [begin, range] = *std::prev(after);
  holds_ = address < range.end;
  begin_ = holds_ ? begin : range.end;
  if (holds_) end_ = range.end;
}

}  // namespace kvgauge::cuda
