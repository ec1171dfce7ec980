// SPDX-License-Identifier: Apache-2.0
// driver.h on the CUDA runtime. All users of a device share one stream, so that memory is taken and
// given back in its order, without waiting for the device.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>

#include "core/check.h"
#include "core/strings.h"
#include "cuda/device/device_query.h"
#include "cuda/device/driver.h"
#include "cuda/device/graph_recorder.h"

namespace kvgauge::cuda {
namespace {

// Work that a graph cannot take is done without one.
void RefuseInGraph(cudaError_t status) {
  if (status == cudaSuccess || Recorder::Open() == nullptr) return;
  cudaGetLastError();
  throw NotRecordable();
}

// To be called by functions that a capture has no place for.
void OutsideOfGraphs() {
  if (Recorder::Open() != nullptr) throw NotRecordable();
}

void Check(cudaError_t status, const char* call) {
  RefuseInGraph(status);
  KVG_CHECK(status == cudaSuccess, StrCat("cuda: ", call, ": ", cudaGetErrorString(status)));
}

// For what destructors call. Objects of static lifetime may go when the runtime is already gone,
// and then there is nothing to wait for or to give back.
void CheckAtEnd(cudaError_t status, const char* call) {
  if (status != cudaErrorCudartUnloading) Check(status, call);
}

// A device that is used. Those that were begun with are used until the process ends.
struct Used {
  int device = 0;
  cudaStream_t stream = nullptr, copies = nullptr;
  cudaMemPool_t pool = nullptr;
  cudaEvent_t sent = nullptr;  // orders copies between devices
  // It reads all memory of the host where it lies, so the runtime need not stage what it copies.
  bool reads_host = false;
};

std::map<int, Used>& AllUsed() {
  // Lives as long as the process: buffers of static lifetime are freed late.
  static auto& used = *new std::map<int, Used>;
  return used;
}

int chosen_device = -1;  // last; -1: none yet
int64_t block_shared_bytes = INT64_MAX;

// The runtime keeps a current device for each thread. With one device a thread needs to be told
// once, until others choose one.
thread_local bool told = false;
void MakeCurrent(int device) {
  if (told && AllUsed().size() == 1) return;
  CheckAtEnd(cudaSetDevice(device), "cudaSetDevice");
  told = true;
}

Used& UsedWith(Stream stream) {
  std::map<int, Used>& all = AllUsed();
  if (all.size() == 1) return all.begin()->second;
  for (auto& [device, used] : all) {
    if (used.stream == stream || used.copies == stream) return used;
  }
  KVG_CHECK(false, "cuda: not the stream of a device that is used");
}

// The device whose memory that is, of several that are used; null: none's.
Used* HolderOf(const void* data) {
  cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  if (attributes.type != cudaMemoryTypeDevice) return nullptr;
  const auto found = AllUsed().find(attributes.device);
  return found == AllUsed().end() ? nullptr : &found->second;
}

void MakeStreams(Used& used) {
  Check(cudaSetDevice(used.device), "cudaSetDevice");
  Check(cudaStreamCreateWithFlags(&used.stream, cudaStreamNonBlocking),
        "cudaStreamCreateWithFlags");
  // Its few blocks come first: who waits for the bus waits longest.
  int least = 0, greatest = 0;
  Check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  Check(cudaStreamCreateWithPriority(&used.copies, cudaStreamNonBlocking, greatest),
        "cudaStreamCreateWithPriority");
  Check(cudaDeviceGetDefaultMemPool(&used.pool, used.device), "cudaDeviceGetDefaultMemPool");
  // What was freed is kept for the next taker; CUDA gives it back when it runs out.
  uint64_t keep = UINT64_MAX;
  Check(cudaMemPoolSetAttribute(used.pool, cudaMemPoolAttrReleaseThreshold, &keep),
        "cudaMemPoolSetAttribute");
  Check(cudaEventCreateWithFlags(&used.sent, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  int reads = 0;
  Check(cudaDeviceGetAttribute(&reads, cudaDevAttrPageableMemoryAccessUsesHostPageTables,
                               used.device),
        "cudaDeviceGetAttribute");
  used.reads_host = reads != 0;
}

bool IsPageable(const void* data) {
  cudaPointerAttributes attributes;
  Check(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeUnregistered;
}

bool Reaches(int from, int to) {
  int can = 0;
  if (cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess) return can != 0;
  cudaGetLastError();
  return false;
}

// Lets a device read and write what lies in the pool of another, so that copies go straight.
void OpenPool(const Used& pool, const Used& to) {
  if (!Reaches(to.device, pool.device)) return;
  cudaMemAccessDesc access = {};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = to.device;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  Check(cudaMemPoolSetAccess(pool.pool, &access, 1), "cudaMemPoolSetAccess");
}

}  // namespace

void TakeBack() { told = false; }

void ActOn(Stream stream) { MakeCurrent(UsedWith(stream).device); }

void CheckLaunch(const char* kernel, cudaError_t status) {
  RefuseInGraph(status);
  KVG_CHECK(status == cudaSuccess,
            StrCat("cuda: kernel ", kernel, ": ", cudaGetErrorString(status)));
}

// Stops at the first call that fails.
DeviceQuery AskDevice(int device, bool begin) {
  // Kernels are loaded with the library and not at their first launch, when the device may be full.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  DeviceQuery asked;
  asked.device = device;
  DeviceInfo& info = asked.info;
  const auto failed = [&asked](DeviceQuery::Failed call, cudaError_t status) {
    asked.failed = call;
    asked.error = cudaGetErrorString(status);
    cudaGetLastError();  // it is told here and nowhere else
    return asked;
  };
  cudaRuntimeGetVersion(&info.runtime_version);
  cudaDriverGetVersion(&info.driver_version);
  // The count is left untouched on failure: trust the return code alone.
  const cudaError_t counted = cudaGetDeviceCount(&asked.count);
  if (counted == cudaErrorInsufficientDriver) return failed(DeviceQuery::Failed::kVersion, counted);
  if (counted != cudaSuccess) return failed(DeviceQuery::Failed::kCount, counted);
  if (device < 0 || device >= asked.count) return asked;
  cudaDeviceProp properties;
  const cudaError_t read = cudaGetDeviceProperties(&properties, device);
  if (read != cudaSuccess) return failed(DeviceQuery::Failed::kProperties, read);
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  info.warpgroups = info.major == 9 && info.minor == 0;  // code for sm_90a runs nowhere else
  info.multiprocessors = properties.multiProcessorCount;
  info.l2_bytes = properties.l2CacheSize;
  info.total_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.shared_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  if (!begin || !WhyNotUsable(asked).empty()) return asked;
  size_t free_bytes = 0, total_bytes = 0;
  // The first calls that make a context, so the first that find the device taken or full.
  cudaError_t memory = cudaSetDevice(device);
  if (memory == cudaSuccess) memory = cudaMemGetInfo(&free_bytes, &total_bytes);
  // However it ended: the thread goes on with the device that it was told of (MakeCurrent).
  const cudaError_t back = chosen_device >= 0 ? cudaSetDevice(chosen_device) : cudaSuccess;
  if (memory == cudaSuccess) memory = back;
  if (memory != cudaSuccess) {
    return failed(memory == cudaErrorMemoryAllocation ? DeviceQuery::Failed::kMemory
                                                      : DeviceQuery::Failed::kContext,
                  memory);
  }
  info.total_bytes = static_cast<int64_t>(total_bytes);
  info.free_bytes = static_cast<int64_t>(free_bytes);
  return asked;
}

bool UseDevice(int device, DeviceInfo* info, std::string* why) {
  const DeviceQuery asked = AskDevice(device, true);
  *info = asked.info;
  *why = WhyNotUsable(asked);
  if (!why->empty()) return false;
  chosen_device = device;
  block_shared_bytes = std::min(block_shared_bytes, info->shared_bytes);
  const auto [found, is_new] = AllUsed().try_emplace(device);
  Used& own = found->second;
  if (is_new) {
    own.device = device;
    MakeStreams(own);
    for (const auto& [other, used] : AllUsed()) {
      if (other == device) continue;
      OpenPool(own, used);
      OpenPool(used, own);
    }
  }
  Check(cudaSetDevice(device), "cudaSetDevice");
  return true;
}

int CurrentDevice() { return chosen_device; }
int64_t BlockSharedBytes() { return block_shared_bytes; }

Stream StreamOf(int device) { return AllUsed().at(device).stream; }

Stream StreamHolding(const void* data) {
  if (AllUsed().size() == 1) return nullptr;
  const Used* const holder = HolderOf(data);
  return holder == nullptr ? nullptr : holder->stream;
}

int64_t FreeBytes(Stream stream) {
  const Used& own = UsedWith(stream);
  MakeCurrent(own.device);
  size_t free_bytes = 0, total_bytes = 0;
  Check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  uint64_t reserved = 0, used = 0;
  Check(cudaMemPoolGetAttribute(own.pool, cudaMemPoolAttrReservedMemCurrent, &reserved),
        "cudaMemPoolGetAttribute");
  Check(cudaMemPoolGetAttribute(own.pool, cudaMemPoolAttrUsedMemCurrent, &used),
        "cudaMemPoolGetAttribute");
  return static_cast<int64_t>(free_bytes + reserved - used);
}

void Wait(Stream stream) {
  OutsideOfGraphs();
  ActOn(stream);
  CheckAtEnd(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}
void WaitForDevices() {
  OutsideOfGraphs();
  TakeBack();  // who waits for other libraries has called them
  for (const auto& [device, used] : AllUsed()) {
    MakeCurrent(device);
    Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
}

Stream CopyStream(Stream stream) { return UsedWith(stream).copies; }

bool BeginCapture(Stream stream) {
  ActOn(stream);
  const cudaError_t status = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  if (status != cudaSuccess) cudaGetLastError();
  return status == cudaSuccess;
}

bool EndCapture(Stream stream, Graph* graph) {
  ActOn(stream);
  cudaGraph_t kept = nullptr;
  cudaError_t status = cudaStreamEndCapture(stream, &kept);
  if (graph != nullptr) {
    if (status == cudaSuccess && *graph != nullptr) {
      cudaGraphExecUpdateResultInfo info;
      if (cudaGraphExecUpdate(*graph, kept, &info) != cudaSuccess) {
        cudaGetLastError();  // it does other things: a new one
        DestroyGraph(*graph);
        *graph = nullptr;
      }
    }
    if (status == cudaSuccess && *graph == nullptr) {
      Graph made = nullptr;
      status = cudaGraphInstantiate(&made, kept, 0);
      if (status == cudaSuccess) *graph = made;
    }
    if (status != cudaSuccess && *graph != nullptr) {
      DestroyGraph(*graph);
      *graph = nullptr;
    }
  }
  if (kept != nullptr) cudaGraphDestroy(kept);
  if (status != cudaSuccess) cudaGetLastError();
  return status == cudaSuccess;
}

bool LaunchGraph(Graph graph, Stream stream) {
  ActOn(stream);
  const cudaError_t status = cudaGraphLaunch(graph, stream);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is no fault: the caller is told
    return false;
  }
  Check(status, "cudaGraphLaunch");
  return true;
}

void DestroyGraph(Graph graph) { CheckAtEnd(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy"); }

void* Malloc(int64_t size_bytes, Stream stream) {
  OutsideOfGraphs();
  const Used& own = UsedWith(stream);
  MakeCurrent(own.device);
  void* data = nullptr;
  const cudaError_t status =
      cudaMallocFromPoolAsync(&data, static_cast<size_t>(size_bytes), own.pool, own.stream);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is no fault: the caller is told
    return nullptr;
  }
  Check(status, "cudaMallocFromPoolAsync");
  return data;
}

void Free(void* data) {
  if (data == nullptr) return;
  if (Recorder* open = Recorder::Open(); open != nullptr) return open->FreeLater(data);
  const Used* const holder = AllUsed().size() == 1 ? &AllUsed().begin()->second : HolderOf(data);
  if (holder == nullptr) return;  // the runtime is gone
  ActOn(holder->stream);
  CheckAtEnd(cudaFreeAsync(data, holder->stream), "cudaFreeAsync");
}

namespace {

void* PageLocked(int64_t size_bytes, unsigned flags) {
  OutsideOfGraphs();
  MakeCurrent(chosen_device);
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, static_cast<size_t>(size_bytes), flags);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is no fault: the caller is told
    return nullptr;
  }
  Check(status, "cudaHostAlloc");
  return data;
}

}  // namespace

void* MallocHost(int64_t size_bytes) { return PageLocked(size_bytes, cudaHostAllocPortable); }
void FreeHost(void* data) {
  if (data == nullptr) return;
  CheckAtEnd(cudaFreeHost(data), "cudaFreeHost");
}

// Devices of 8.0 and later know the memory by the address that the host has.
void* MallocMapped(int64_t size_bytes) {
  return PageLocked(size_bytes, cudaHostAllocMapped | cudaHostAllocPortable);
}
void FreeMapped(void* data) {
  if (data == nullptr) return;
  // Not in the order of a stream: what still reads it must be done.
  for (const auto& [device, used] : AllUsed()) {
    for (const cudaStream_t stream : {used.stream, used.copies}) {
      CheckAtEnd(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }
  }
  FreeHost(data);
}
void Discard(void*, int64_t) {}

// What these call the device's may be mapped memory of the host: the runtime looks for itself.
void CopyToDevice(void* to, const void* from, int64_t size_bytes, Stream stream) {
  OutsideOfGraphs();
  ActOn(stream);
  Check(cudaMemcpyAsync(to, from, static_cast<size_t>(size_bytes), cudaMemcpyDefault, stream),
        "cudaMemcpyAsync");
  // Elsewhere pageable memory was read, to be staged, when the call returns.
  if (UsedWith(stream).reads_host && IsPageable(from)) Wait(stream);
}
void CopyToHost(void* to, const void* from, int64_t size_bytes, Stream stream) {
  OutsideOfGraphs();
  ActOn(stream);
  Check(cudaMemcpyAsync(to, from, static_cast<size_t>(size_bytes), cudaMemcpyDefault, stream),
        "cudaMemcpyAsync");
  Wait(stream);
}
void CopyOnDevice(void* to, const void* from, int64_t size_bytes, Stream stream) {
  if (!Submits(stream, "copy", to, from, size_bytes)) return;
  ActOn(stream);
  Check(cudaMemcpyAsync(to, from, static_cast<size_t>(size_bytes), cudaMemcpyDefault, stream),
        "cudaMemcpyAsync");
}
void Fill(void* to, int byte, int64_t size_bytes, Stream stream) {
  if (!Submits(stream, "fill", to, byte, size_bytes)) return;
  ActOn(stream);
  Check(cudaMemsetAsync(to, byte, static_cast<size_t>(size_bytes), stream), "cudaMemsetAsync");
}

bool ReachEachOther(Stream one, Stream other) {
  const int a = UsedWith(one).device, b = UsedWith(other).device;
  return Reaches(a, b) && Reaches(b, a);
}

void CopyPeer(void* to, Stream to_stream, const void* from, Stream from_stream,
              int64_t size_bytes) {
  OutsideOfGraphs();
  const Used &target = UsedWith(to_stream), &source = UsedWith(from_stream);
  // The copy is work of the stream that it reads from. What went to the other one may still use
  // what is written.
  ActOn(to_stream);
  Check(cudaEventRecord(target.sent, to_stream), "cudaEventRecord");
  ActOn(from_stream);
  Check(cudaStreamWaitEvent(from_stream, target.sent, 0), "cudaStreamWaitEvent");
  Check(cudaMemcpyPeerAsync(to, target.device, from, source.device, static_cast<size_t>(size_bytes),
                            from_stream),
        "cudaMemcpyPeerAsync");
  Check(cudaEventRecord(source.sent, from_stream), "cudaEventRecord");
  ActOn(to_stream);
  Check(cudaStreamWaitEvent(to_stream, source.sent, 0), "cudaStreamWaitEvent");
}

Event CreateEvent(Stream stream) {
  MakeCurrent(UsedWith(stream).device);
  cudaEvent_t event = nullptr;
  Check(cudaEventCreate(&event), "cudaEventCreate");
  return event;
}
void DestroyEvent(Event event) { CheckAtEnd(cudaEventDestroy(event), "cudaEventDestroy"); }
void Record(Event event, Stream stream) {
  OutsideOfGraphs();
  ActOn(stream);
  Check(cudaEventRecord(event, stream), "cudaEventRecord");
}
void WaitFor(Event event) {
  OutsideOfGraphs();
  CheckAtEnd(cudaEventSynchronize(event), "cudaEventSynchronize");
}
void WaitIn(Stream stream, Event event) {
  OutsideOfGraphs();
  ActOn(stream);
  Check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
}
double MillisecondsBetween(Event begin, Event end) {
  Check(cudaEventSynchronize(end), "cudaEventSynchronize");
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
  return milliseconds;
}

}  // namespace kvgauge::cuda
