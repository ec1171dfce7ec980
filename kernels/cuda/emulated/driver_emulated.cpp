// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/strings.h"
#include "cuda/device/device_query.h"
#include "cuda/device/driver.h"
#include "cuda/device/graph_recorder.h"
#include "cuda/device/simt.h"
#include "cuda/emulated/device_memory.h"

namespace kvgauge::cuda {
namespace emulated {
namespace {

constexpr int64_t kAlignment = 256;
// Between allocations; holds a pattern that kernels must not change.
constexpr int64_t kGap = 256;
constexpr int kGapByte = 0x5a;
// What was never written reads as NaN.
constexpr int kPoison = 0xff;
constexpr int64_t kReserved = int64_t{8} << 30;
constexpr int64_t kPage = int64_t{2} << 20;

class DeviceMemory {
 public:
  DeviceMemory() {
    void* base = mmap(nullptr, kReserved + kPage, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    KVG_CHECK(base != MAP_FAILED, "cannot reserve emulated device memory");
    // Large pages make it cheap to open and shut.
    const auto address = (reinterpret_cast<uintptr_t>(base) + kPage - 1) / kPage * kPage;
    base_ = reinterpret_cast<std::byte*>(address);
    madvise(base_, kReserved, MADV_HUGEPAGE);
    free_[0] = kReserved;
  }

  void* Allocate(int64_t size_bytes) {
    const std::lock_guard lock(mutex_);
    if (allocated_ + size_bytes > capacity_) return nullptr;
    if (refused_ > 0 && granted_-- <= 0) {
      --refused_;
      return nullptr;
    }
    const int64_t taken = (size_bytes + kAlignment - 1) / kAlignment * kAlignment + kGap;
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < taken) continue;
      const int64_t offset = it->first, left = it->second - taken;
      free_.erase(it);
      if (left > 0) free_[offset + taken] = left;
      sizes_[offset] = {size_bytes, taken};
      allocated_ += size_bytes;
      peak_ = std::max(peak_, allocated_);
      high_ = std::max(high_, (offset + taken + kPage - 1) / kPage * kPage);
      Open();
      std::memset(base_ + offset, kPoison, static_cast<size_t>(size_bytes));
      std::memset(base_ + offset + size_bytes, kGapByte, static_cast<size_t>(taken - size_bytes));
      Shut();
      return base_ + offset;
    }
    return nullptr;
  }

  void Release(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(static_cast<std::byte*>(data) - base_);
    KVG_CHECK(found != sizes_.end(), "freed what was not allocated");
    Open();
    CheckGap(found->first, found->second);
    // A use after the free meets NaN.
    std::memset(base_ + found->first, kPoison, static_cast<size_t>(found->second.taken));
    Shut();
    allocated_ -= found->second.size;
    Join(found->first, found->second.taken);
    sizes_.erase(found);
  }

  // Every byte must lie in one allocation.
  void CheckRange(const void* data, int64_t size_bytes) {
    if (size_bytes == 0) return;
    const std::lock_guard lock(mutex_);
    const int64_t offset = static_cast<const std::byte*>(data) - base_;
    const auto after = sizes_.upper_bound(offset);
    KVG_CHECK(Holds(data) && after != sizes_.begin(), "not device memory");
    const auto& [begin, extent] = *std::prev(after);
    KVG_CHECK(offset + size_bytes <= begin + extent.size,
              StrCat("a copy of ", size_bytes, " bytes leaves its buffer of ", extent.size));
  }

  bool Holds(const void* data) const { return data >= base_ && data < base_ + kReserved; }

  void Enter() {
    const std::lock_guard lock(mutex_);
    Open();
  }
  void Leave() {
    const std::lock_guard lock(mutex_);
    Shut();
  }

  int64_t peak() {
    const std::lock_guard lock(mutex_);
    return peak_;
  }
  int64_t allocated() {
    const std::lock_guard lock(mutex_);
    return allocated_;
  }
  int64_t capacity() {
    const std::lock_guard lock(mutex_);
    return capacity_;
  }
  void SetCapacity(int64_t size_bytes) {
    const std::lock_guard lock(mutex_);
    capacity_ = size_bytes;
  }
  void Refuse(int64_t granted, int64_t refused) {
    const std::lock_guard lock(mutex_);
    granted_ = granted;
    refused_ = refused;
  }
  int64_t refused() {
    const std::lock_guard lock(mutex_);
    return refused_;
  }

 private:
  struct Extent {
    int64_t size, taken;
  };

  void Open() {
    if (users_++ == 0) Protect(PROT_READ | PROT_WRITE);
  }
  void Shut() {
    if (--users_ == 0) Protect(PROT_NONE);
  }
  void Protect(int rights) {
    if (high_ == 0) return;
    KVG_CHECK(mprotect(base_, static_cast<size_t>(high_), rights) == 0, "mprotect failed");
  }

  void CheckGap(int64_t offset, const Extent& extent) const {
    for (int64_t i = extent.size; i < extent.taken; ++i) {
      KVG_CHECK(base_[offset + i] == std::byte{kGapByte},
                StrCat("a kernel wrote past the end of a buffer of ", extent.size, " bytes"));
    }
  }

  void Join(int64_t offset, int64_t size) {
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == offset + size) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second += size;
        return;
      }
    }
    free_[offset] = size;
  }

  std::mutex mutex_;
  std::byte* base_ = nullptr;
  std::map<int64_t, int64_t> free_;  // offset to size
  std::map<int64_t, Extent> sizes_;  // of allocations
  int64_t allocated_ = 0, peak_ = 0, capacity_ = kReserved / 2, high_ = 0;
  int64_t granted_ = 0, refused_ = 0;  // allocations to come
  int users_ = 0;
};

struct Counters {
  std::atomic<int64_t> uploads = 0, downloads = 0, upload_bytes = 0, download_bytes = 0,
                       allocations = 0, launches = 0, waits = 0, overlapped = 0, peer_copies = 0;
};
Counters counters;

struct EmulatedDevice {
  explicit EmulatedDevice(int device) : number(device) {}

  const int number;
  DeviceMemory memory;
  // What stand for its streams, and are no addresses of anything else.
  char stream = 0, copy_stream = 0;
  int major = 9, minor = 0;
  std::atomic<int64_t> launches_left = INT64_MAX;  // until it is lost
  std::atomic<int64_t> launches = 0;
};

int device_count = 1;
int current_device = 0;

// Those that were used so far; null: not yet. They live as long as the process: buffers of static
// lifetime are freed late.
std::array<EmulatedDevice*, kMostDevices> devices = {};

EmulatedDevice& DeviceOf(int device) {
  EmulatedDevice*& found = devices[static_cast<size_t>(device)];
  if (found == nullptr) found = new EmulatedDevice(device);
  return *found;
}

// The device whose memory it is; null: none.
EmulatedDevice* OwnerOf(const void* data) {
  for (EmulatedDevice* device : devices) {
    if (device != nullptr && device->memory.Holds(data)) return device;
  }
  return nullptr;
}

// A null stream is that of the device that was chosen last.
EmulatedDevice& DeviceWith(Stream stream) {
  for (EmulatedDevice* device : devices) {
    if (device == nullptr) continue;
    const auto* const at = reinterpret_cast<const char*>(stream);
    if (at == &device->stream || at == &device->copy_stream) return *device;
  }
  KVG_CHECK(stream == nullptr, "not a stream of an emulated device");
  return DeviceOf(current_device);
}
bool IsCopyStream(Stream stream) {
  return stream != nullptr &&
         reinterpret_cast<const char*>(stream) == &DeviceWith(stream).copy_stream;
}
Stream StreamOfDevice(EmulatedDevice& device) { return reinterpret_cast<Stream>(&device.stream); }

// The device whose work is being done; null: none's.
EmulatedDevice* working = nullptr;

// The current device of a thread, as the runtime has one; -1: none yet. `told`: the one that it was
// told of last. It is told again when that is another one, or after TakeBack.
thread_local int current = -1, told = -1;
void MakeCurrent(const EmulatedDevice& device) {
  if (told != device.number) current = told = device.number;
  KVG_CHECK(current == device.number,
            StrCat("work of device ", device.number, " while ", current, " is current"));
}

class Working {
 public:
  explicit Working(EmulatedDevice& device) : before_(std::exchange(working, &device)) {}
  ~Working() { working = before_; }
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;

 private:
  EmulatedDevice* before_;
};

bool peers = true;

EmulatedDevice& WorkingDevice() { return working != nullptr ? *working : DeviceOf(current_device); }
DeviceMemory& Mapped() {
  static auto* memory = new DeviceMemory();
  return *memory;
}
// The memory that work of a stream may have that in: its device's, or mapped memory of the host.
DeviceMemory& Holder(const void* data, Stream stream) {
  return Mapped().Holds(data) ? Mapped() : DeviceWith(stream).memory;
}

}  // namespace

void SetDevices(int count) {
  KVG_CHECK(count >= 1 && count <= kMostDevices, "so many devices are not emulated");
  device_count = count;
}
void SetCapability(int device, int major, int minor) {
  DeviceOf(device).major = major;
  DeviceOf(device).minor = minor;
}
void LoseDevice(int device, int64_t launches) { DeviceOf(device).launches_left = launches; }

namespace {
const DeviceQuery* asked = nullptr;
}  // namespace
void SetAsked(const DeviceQuery* answers) { asked = answers; }

void SetPeers(bool reach) { peers = reach; }

void ChooseForThread(int device) { current = device; }

namespace {
int64_t block_shared_bytes = kBlockSharedBytes;
}  // namespace
void SetBlockSharedBytes(int64_t size_bytes) { block_shared_bytes = size_bytes; }

namespace {
Warpgroups given_warpgroups = Warpgroups::kNone;
}  // namespace
void SetWarpgroups(Warpgroups warpgroups) { given_warpgroups = warpgroups; }
Warpgroups GivenWarpgroups() { return given_warpgroups; }

DeviceAccess::DeviceAccess() : device_(WorkingDevice().number) {
  DeviceOf(device_).memory.Enter();
  Mapped().Enter();
}
DeviceAccess::~DeviceAccess() {
  Mapped().Leave();
  DeviceOf(device_).memory.Leave();
}

bool IsDeviceMemory(const void* data) { return OwnerOf(data) != nullptr || Mapped().Holds(data); }
int64_t AllocatedBytes(int device) { return DeviceOf(device).memory.allocated(); }
int64_t PeakBytes(int device) { return DeviceOf(device).memory.peak(); }
void SetCapacity(int64_t size_bytes, int device) {
  DeviceOf(device).memory.SetCapacity(size_bytes);
}
void RefuseAllocations(int64_t granted, int64_t refused, int device) {
  DeviceOf(device).memory.Refuse(granted, refused);
}
int64_t RefusalsLeft(int device) { return DeviceOf(device).memory.refused(); }
int64_t MappedBytes() { return Mapped().allocated(); }
void SetMappedCapacity(int64_t size_bytes) { Mapped().SetCapacity(size_bytes); }
void CountLaunch() {
  ++counters.launches;
  EmulatedDevice& device = WorkingDevice();
  ++device.launches;
  KVG_CHECK(device.launches_left-- > 0, StrCat("cuda: device ", device.number, " is lost"));
}
int64_t LaunchesOf(int device) { return DeviceOf(device).launches; }
Traffic TrafficSoFar() {
  return {counters.uploads,        counters.downloads,   counters.upload_bytes,
          counters.download_bytes, counters.allocations, counters.launches,
          counters.waits,          counters.overlapped,  counters.peer_copies};
}

}  // namespace emulated

DeviceQuery AskDevice(int device, bool begin) {
  if (emulated::asked != nullptr) {
    DeviceQuery asked = *emulated::asked;
    asked.device = device;
    return asked;
  }
  DeviceQuery asked;
  asked.device = device;
  asked.count = emulated::device_count;
  DeviceInfo& info = asked.info;
  info.driver_version = info.runtime_version = 13000;
  if (device < 0 || device >= asked.count) return asked;
  emulated::EmulatedDevice& found = emulated::DeviceOf(device);
  info.name = "emulated device";
  info.major = found.major;
  info.minor = found.minor;
  info.warpgroups = emulated::given_warpgroups != emulated::Warpgroups::kNone && info.major == 9;
  info.multiprocessors = 4;
  info.total_bytes = found.memory.capacity();
  if (begin) info.free_bytes = found.memory.capacity() - found.memory.allocated();
  info.shared_bytes = emulated::block_shared_bytes;
  info.l2_bytes = int64_t{50} << 20;
  return asked;
}

// A command of a test after another may use another device.
bool UseDevice(int device, DeviceInfo* info, std::string* why) {
  const DeviceQuery asked = AskDevice(device, true);
  *info = asked.info;
  *why = WhyNotUsable(asked);
  if (why->empty()) emulated::current_device = device;
  return why->empty();
}

void TakeBack() { emulated::told = -1; }

int CurrentDevice() { return emulated::current_device; }
int64_t BlockSharedBytes() { return emulated::block_shared_bytes; }

Stream StreamOf(int device) { return emulated::StreamOfDevice(emulated::DeviceOf(device)); }

Stream StreamHolding(const void* data) {
  emulated::EmulatedDevice* const owner = emulated::OwnerOf(data);
  return owner == nullptr ? nullptr : emulated::StreamOfDevice(*owner);
}

int64_t FreeBytes(Stream stream) {
  emulated::DeviceMemory& memory = emulated::DeviceWith(stream).memory;
  return memory.capacity() - memory.allocated();
}

namespace {

// To be called by functions that a capture has no place for.
void OutsideOfGraphs() {
  if (Recorder::Open() != nullptr) throw NotRecordable();
}

}  // namespace

// Everything is done when a call returns, so a stream holds nothing, but while it captures. What
// goes to a stream of copies is done as late as may be: when something waits for it.
namespace emulated {
namespace {

struct CopyWorks {
  std::deque<std::function<void()>> left;
  int64_t taken = 0;  // of all
  // Does all before the work with that number.
  void DoUntil(int64_t end) {
    while (!left.empty() && taken < end) {
      const std::function<void()> work = std::move(left.front());
      left.pop_front();
      ++taken;
      work();
    }
  }
  int64_t count() const { return taken + std::ssize(left); }
};
CopyWorks copies;

// Pieces of all devices; each knows which one it is for.
struct Captured {
  std::vector<std::pair<const char*, std::function<void()>>> works;
};
Captured captured;
bool capturing = false;
GraphCounts graph_counts;

Captured* WorksOf(Graph graph) { return reinterpret_cast<Captured*>(graph); }

// Whether a graph can be changed to other work: the same kinds in the same order.
bool SameKinds(const Captured& a, const Captured& b) {
  return std::equal(a.works.begin(), a.works.end(), b.works.begin(), b.works.end(),
                    [](const auto& x, const auto& y) { return StrCat(x.first) == y.first; });
}

}  // namespace

void Do(const char* what, Stream stream, std::function<void()> work) {
  EmulatedDevice* const device = &DeviceWith(stream);
  MakeCurrent(*device);
  auto there = [device, work = std::move(work)] {
    const Working on(*device);
    work();
  };
  if (IsCopyStream(stream)) {
    KVG_CHECK(!capturing, "a stream of copies while the other one captures");
    ++counters.overlapped;
    copies.left.push_back(std::move(there));
    return;
  }
  if (!capturing) return there();
  captured.works.emplace_back(what, std::move(there));
}

GraphCounts GraphsSoFar() { return graph_counts; }

}  // namespace emulated

Stream CopyStream(Stream stream) {
  return reinterpret_cast<Stream>(&emulated::DeviceWith(stream).copy_stream);
}
void Wait(Stream stream) {
  OutsideOfGraphs();
  ++emulated::counters.waits;
  if (emulated::IsCopyStream(stream)) emulated::copies.DoUntil(emulated::copies.count());
}
void WaitForDevices() {
  OutsideOfGraphs();
  TakeBack();
  ++emulated::counters.waits;
  emulated::copies.DoUntil(emulated::copies.count());
}

bool BeginCapture(Stream) {
  KVG_CHECK(!emulated::capturing, "a capture within a capture");
  emulated::capturing = true;
  emulated::captured.works.clear();
  return true;
}

bool EndCapture(Stream, Graph* graph) {
  emulated::capturing = false;
  emulated::Captured works = std::exchange(emulated::captured, {});
  if (graph == nullptr) return true;
  if (*graph != nullptr && !emulated::SameKinds(*emulated::WorksOf(*graph), works)) {
    DestroyGraph(*graph);
    *graph = nullptr;
  }
  if (*graph != nullptr) {
    ++emulated::graph_counts.updated;
  } else {
    ++emulated::graph_counts.made;
    *graph = reinterpret_cast<Graph>(new emulated::Captured());
  }
  *emulated::WorksOf(*graph) = std::move(works);
  return true;
}

bool LaunchGraph(Graph graph, Stream) {
  OutsideOfGraphs();
  ++emulated::graph_counts.launched;
  for (const auto& [what, work] : emulated::WorksOf(graph)->works) work();
  return true;
}

void DestroyGraph(Graph graph) { delete emulated::WorksOf(graph); }

void* Malloc(int64_t size_bytes, Stream stream) {
  OutsideOfGraphs();
  ++emulated::counters.allocations;
  emulated::EmulatedDevice& device = emulated::DeviceWith(stream);
  emulated::MakeCurrent(device);
  return device.memory.Allocate(size_bytes);
}
void Free(void* data) {
  Recorder* const open = Recorder::Open();
  if (data != nullptr && open != nullptr) return open->FreeLater(data);
  if (data == nullptr) return;
  emulated::EmulatedDevice* const owner = emulated::OwnerOf(data);
  KVG_CHECK(owner != nullptr, "freed what was not allocated");
  owner->memory.Release(data);
}

void* MallocHost(int64_t size_bytes) {
  OutsideOfGraphs();
  return ::operator new(static_cast<size_t>(size_bytes));
}
void FreeHost(void* data) { ::operator delete(data); }
void* MallocMapped(int64_t size_bytes) {
  OutsideOfGraphs();
  return emulated::Mapped().Allocate(size_bytes);
}
void FreeMapped(void* data) {
  if (data == nullptr) return;
  emulated::copies.DoUntil(emulated::copies.count());
  emulated::Mapped().Release(data);
}
void Discard(void* data, int64_t size_bytes) {
  emulated::EmulatedDevice* const owner = emulated::OwnerOf(data);
  KVG_CHECK(owner != nullptr, "not device memory");
  owner->memory.CheckRange(data, size_bytes);
  const emulated::Working on(*owner);
  const emulated::DeviceAccess access;
  std::memset(data, emulated::kPoison, static_cast<size_t>(size_bytes));
}
void CopyToDevice(void* to, const void* from, int64_t size_bytes, Stream stream) {
  KVG_CHECK(!emulated::IsDeviceMemory(from), "the source of CopyToDevice is on the device");
  emulated::Holder(to, stream).CheckRange(to, size_bytes);
  OutsideOfGraphs();
  ++emulated::counters.uploads;
  emulated::counters.upload_bytes += size_bytes;
  emulated::Do("copy", stream, [=] {
    const emulated::DeviceAccess access;
    std::memcpy(to, from, static_cast<size_t>(size_bytes));
  });
}
void CopyToHost(void* to, const void* from, int64_t size_bytes, Stream stream) {
  KVG_CHECK(!emulated::IsDeviceMemory(to), "the target of CopyToHost is on the device");
  emulated::Holder(from, stream).CheckRange(from, size_bytes);
  OutsideOfGraphs();
  ++emulated::counters.downloads;
  emulated::counters.download_bytes += size_bytes;
  emulated::EmulatedDevice& device = emulated::DeviceWith(stream);
  emulated::MakeCurrent(device);
  const emulated::Working on(device);
  const emulated::DeviceAccess access;
  std::memcpy(to, from, static_cast<size_t>(size_bytes));
}
void CopyOnDevice(void* to, const void* from, int64_t size_bytes, Stream stream) {
  emulated::Holder(from, stream).CheckRange(from, size_bytes);
  emulated::Holder(to, stream).CheckRange(to, size_bytes);
  if (!Submits(stream, "copy", to, from, size_bytes)) return;
  emulated::Do("copy", stream, [=] {
    const emulated::DeviceAccess access;
    std::memmove(to, from, static_cast<size_t>(size_bytes));
  });
}
void Fill(void* to, int byte, int64_t size_bytes, Stream stream) {
  emulated::Holder(to, stream).CheckRange(to, size_bytes);
  if (!Submits(stream, "fill", to, byte, size_bytes)) return;
  emulated::Do("fill", stream, [=] {
    const emulated::DeviceAccess access;
    std::memset(to, byte, static_cast<size_t>(size_bytes));
  });
}

bool ReachEachOther(Stream, Stream) { return emulated::peers; }

void CopyPeer(void* to, Stream to_stream, const void* from, Stream from_stream,
              int64_t size_bytes) {
  OutsideOfGraphs();
  emulated::EmulatedDevice &target = emulated::DeviceWith(to_stream),
                           &source = emulated::DeviceWith(from_stream);
  KVG_CHECK(emulated::peers && &target != &source, "no two devices that reach each other");
  target.memory.CheckRange(to, size_bytes);
  source.memory.CheckRange(from, size_bytes);
  ++emulated::counters.peer_copies;
  target.memory.Enter();
  source.memory.Enter();
  std::memcpy(to, from, static_cast<size_t>(size_bytes));
  source.memory.Leave();
  target.memory.Leave();
}

namespace {

using Clock = std::chrono::steady_clock;
struct Moment {
  Clock::time_point time;
  int64_t copies = 0;  // that the stream of copies does before it
};
Moment* MomentOf(Event event) { return reinterpret_cast<Moment*>(event); }

}  // namespace

Event CreateEvent(Stream) { return reinterpret_cast<Event>(new Moment()); }
void DestroyEvent(Event event) { delete MomentOf(event); }
void Record(Event event, Stream stream) {
  OutsideOfGraphs();
  *MomentOf(event) = {Clock::now(), emulated::IsCopyStream(stream) ? emulated::copies.count() : 0};
}
void WaitFor(Event event) {
  OutsideOfGraphs();
  emulated::copies.DoUntil(MomentOf(event)->copies);
}
void WaitIn(Stream stream, Event event) {
  OutsideOfGraphs();
  // A stream of copies waits for nothing: what went to the others is done.
  if (!emulated::IsCopyStream(stream)) emulated::copies.DoUntil(MomentOf(event)->copies);
}
double MillisecondsBetween(Event begin, Event end) {
  WaitFor(end);
  return std::chrono::duration<double, std::milli>(MomentOf(end)->time - MomentOf(begin)->time)
      .count();
}

}  // namespace kvgauge::cuda
