// SPDX-License-Identifier: Apache-2.0
// driver.h on the CUDA runtime. All users share one stream, so that memory is taken and given back
// in its order, without waiting for the device.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdlib>

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

int chosen_device = -1;  // -1: none yet

// The runtime keeps a current device for each thread.
void MakeCurrent() {
  thread_local bool current = false;
  if (current || chosen_device < 0) return;
  Check(cudaSetDevice(chosen_device), "cudaSetDevice");
  current = true;
}

cudaStream_t TheStream() {
  MakeCurrent();
  static const cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    Check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return made;
  }();
  return stream;
}

cudaMemPool_t ThePool() {
  static const cudaMemPool_t pool = [] {
    cudaMemPool_t found = nullptr;
    Check(cudaDeviceGetDefaultMemPool(&found, chosen_device), "cudaDeviceGetDefaultMemPool");
    // What was freed is kept for the next taker; CUDA gives it back when it runs out.
    uint64_t keep = UINT64_MAX;
    Check(cudaMemPoolSetAttribute(found, cudaMemPoolAttrReleaseThreshold, &keep),
          "cudaMemPoolSetAttribute");
    return found;
  }();
  return pool;
}

}  // namespace

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
  info.multiprocessors = properties.multiProcessorCount;
  info.l2_bytes = properties.l2CacheSize;
  info.total_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.shared_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  if (!begin || !WhyNotUsable(asked).empty()) return asked;
  size_t free_bytes = 0, total_bytes = 0;
  // The first calls that make a context, so the first that find the device taken or full.
  cudaError_t memory = cudaSetDevice(device);
  if (memory == cudaSuccess) memory = cudaMemGetInfo(&free_bytes, &total_bytes);
  if (memory != cudaSuccess) {
    return failed(memory == cudaErrorMemoryAllocation ? DeviceQuery::Failed::kMemory
                                                      : DeviceQuery::Failed::kContext,
                  memory);
  }
  if (chosen_device >= 0) Check(cudaSetDevice(chosen_device), "cudaSetDevice");
  info.total_bytes = static_cast<int64_t>(total_bytes);
  info.free_bytes = static_cast<int64_t>(free_bytes);
  return asked;
}

bool UseDevice(int device, DeviceInfo* info, std::string* why) {
  if (chosen_device >= 0 && device != chosen_device) {
    *why = StrCat("this process uses device ", chosen_device, ", so it cannot use device ", device);
    return false;
  }
  const DeviceQuery asked = AskDevice(device, true);
  *info = asked.info;
  *why = WhyNotUsable(asked);
  if (why->empty()) chosen_device = device;
  return why->empty();
}

int CurrentDevice() { return chosen_device; }

int64_t FreeBytes() {
  MakeCurrent();
  size_t free_bytes = 0, total_bytes = 0;
  Check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  uint64_t reserved = 0, used = 0;
  Check(cudaMemPoolGetAttribute(ThePool(), cudaMemPoolAttrReservedMemCurrent, &reserved),
        "cudaMemPoolGetAttribute");
  Check(cudaMemPoolGetAttribute(ThePool(), cudaMemPoolAttrUsedMemCurrent, &used),
        "cudaMemPoolGetAttribute");
  return static_cast<int64_t>(free_bytes + reserved - used);
}

Stream CreateStream() { return TheStream(); }
void DestroyStream(Stream) {}
void Wait(Stream stream) {
  OutsideOfGraphs();
  Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}
void WaitForDevice() {
  OutsideOfGraphs();
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

Stream CopyStream() {
  static const cudaStream_t stream = [] {
    // Its few blocks come first: who waits for the bus waits longest.
    int least = 0, greatest = 0;
    Check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    cudaStream_t made = nullptr;
    Check(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest),
          "cudaStreamCreateWithPriority");
    return made;
  }();
  return stream;
}

bool BeginCapture(Stream stream) {
  const cudaError_t status = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  if (status != cudaSuccess) cudaGetLastError();
  return status == cudaSuccess;
}

bool EndCapture(Stream stream, Graph* graph) {
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
    if (status == cudaSuccess && *graph == nullptr) status = cudaGraphInstantiate(graph, kept, 0);
    if (status != cudaSuccess) *graph = nullptr;
  }
  if (kept != nullptr) cudaGraphDestroy(kept);
  if (status != cudaSuccess) cudaGetLastError();
  return status == cudaSuccess;
}

bool LaunchGraph(Graph graph, Stream stream) {
  const cudaError_t status = cudaGraphLaunch(graph, stream);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is no fault: the caller is told
    return false;
  }
  Check(status, "cudaGraphLaunch");
  return true;
}

void DestroyGraph(Graph graph) {
  const cudaError_t status = cudaGraphExecDestroy(graph);
  if (status != cudaErrorCudartUnloading) Check(status, "cudaGraphExecDestroy");
}

void* Malloc(int64_t size_bytes) {
  OutsideOfGraphs();
  void* data = nullptr;
  const cudaError_t status =
      cudaMallocFromPoolAsync(&data, static_cast<size_t>(size_bytes), ThePool(), TheStream());
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
  const cudaError_t status = cudaFreeAsync(data, TheStream());
  // Buffers of static lifetime may be freed when the runtime is already gone.
  if (status != cudaErrorCudartUnloading) Check(status, "cudaFreeAsync");
}

namespace {

void* PageLocked(int64_t size_bytes, unsigned flags) {
  OutsideOfGraphs();
  MakeCurrent();
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

void* MallocHost(int64_t size_bytes) { return PageLocked(size_bytes, cudaHostAllocDefault); }
void FreeHost(void* data) {
  if (data == nullptr) return;
  const cudaError_t status = cudaFreeHost(data);
  if (status != cudaErrorCudartUnloading) Check(status, "cudaFreeHost");
}

// Devices of 8.0 and later know the memory by the address that the host has.
void* MallocMapped(int64_t size_bytes) {
  return PageLocked(size_bytes, cudaHostAllocMapped | cudaHostAllocPortable);
}
void FreeMapped(void* data) {
  if (data == nullptr) return;
  // Not in the order of a stream: what still reads it must be done.
  for (const Stream stream : {TheStream(), CopyStream()}) {
    const cudaError_t status = cudaStreamSynchronize(stream);
    if (status == cudaErrorCudartUnloading) return;
    Check(status, "cudaStreamSynchronize");
  }
  FreeHost(data);
}
void Discard(void*, int64_t) {}

// What these call the device's may be mapped memory of the host: the runtime looks for itself.
void CopyToDevice(void* to, const void* from, int64_t size_bytes, Stream stream) {
  OutsideOfGraphs();
  Check(cudaMemcpyAsync(to, from, static_cast<size_t>(size_bytes), cudaMemcpyDefault, stream),
        "cudaMemcpyAsync");
}
void CopyToHost(void* to, const void* from, int64_t size_bytes, Stream stream) {
  OutsideOfGraphs();
  Check(cudaMemcpyAsync(to, from, static_cast<size_t>(size_bytes), cudaMemcpyDefault, stream),
        "cudaMemcpyAsync");
  Wait(stream);
}
void CopyOnDevice(void* to, const void* from, int64_t size_bytes, Stream stream) {
  if (!Submits("copy", to, from, size_bytes)) return;
  Check(cudaMemcpyAsync(to, from, static_cast<size_t>(size_bytes), cudaMemcpyDefault, stream),
        "cudaMemcpyAsync");
}
void Fill(void* to, int byte, int64_t size_bytes, Stream stream) {
  if (!Submits("fill", to, byte, size_bytes)) return;
  Check(cudaMemsetAsync(to, byte, static_cast<size_t>(size_bytes), stream), "cudaMemsetAsync");
}

Event CreateEvent() {
  MakeCurrent();
  cudaEvent_t event = nullptr;
  Check(cudaEventCreate(&event), "cudaEventCreate");
  return event;
}
void DestroyEvent(Event event) { Check(cudaEventDestroy(event), "cudaEventDestroy"); }
void Record(Event event, Stream stream) {
  OutsideOfGraphs();
  Check(cudaEventRecord(event, stream), "cudaEventRecord");
}
void WaitFor(Event event) {
  OutsideOfGraphs();
  Check(cudaEventSynchronize(event), "cudaEventSynchronize");
}
void WaitIn(Stream stream, Event event) {
  OutsideOfGraphs();
  Check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
}
double MillisecondsBetween(Event begin, Event end) {
  Check(cudaEventSynchronize(end), "cudaEventSynchronize");
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
  return milliseconds;
}

}  // namespace kvgauge::cuda
