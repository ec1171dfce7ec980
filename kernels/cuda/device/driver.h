// SPDX-License-Identifier: Apache-2.0
// What the backend asks of a device besides kernels. driver_cuda.cpp answers with the CUDA runtime,
// emulated/driver_emulated.cpp with host memory that can only be touched inside kernels and copies.
//
// While a Recorder is open (recorder.h), Malloc, Wait and copies from and to the host throw
// NotRecordable, and Free waits.
//
// A process may use several devices. Each has one stream, and whoever is given a stream acts on its
// device: there is no current device to be set before a call. Other code of the process may set
// one: TakeBack is called behind it. Memory of a device is touched by work of its own stream alone;
// CopyPeer brings it to another device. A failing call other than Malloc means the device is lost
// or the program is wrong: it ends the program with the runtime's message.
#pragma once

#include <cstdint>
#include <new>
#include <string>

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace kvgauge::cuda {

using Stream = CUstream_st*;
using Event = CUevent_st*;
using Graph = CUgraphExec_st*;

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int64_t total_bytes = 0, free_bytes = 0;
  int64_t shared_bytes = 0;  // that a block may ask for
  int64_t l2_bytes = 0;
  bool warpgroups = false;                      // has the instructions of warpgroup.h
  int driver_version = 0, runtime_version = 0;  // 1000 * major + 10 * minor
};

// Begins to use a device, by its number from 0 among those that CUDA shows to this process. False,
// and why, when it cannot be used.
bool UseDevice(int device, DeviceInfo* info, std::string* why);
// The device that UseDevice chose last.
int CurrentDevice();
// The device that the runtime has for the calling thread may have been chosen by others.
// WaitForDevices does the same.
void TakeBack();
// What a block may ask for of shared memory on all devices that are used.
int64_t BlockSharedBytes();
// The stream of a device that is used.
Stream StreamOf(int device);
// The stream of the device whose memory that is; null: only one device is used, or it is mapped
// memory of the host.
Stream StreamHolding(const void* data);
// The free memory of a device, now.
int64_t FreeBytes(Stream stream);

// Kernels, fills and copies on the device that go to `stream` from here on are not done but kept
// for a graph, until EndCapture; nothing else may be asked of the stream. False where it cannot be.
bool BeginCapture(Stream stream);
// Makes *graph, null or made before and not running, do what was kept; null: all of it is dropped.
// False where it cannot be: *graph is null then.
bool EndCapture(Stream stream, Graph* graph);
// False when there is no room: then nothing of it is done.
bool LaunchGraph(Graph graph, Stream stream);
void DestroyGraph(Graph graph);

void Wait(Stream stream);
// For all streams on the devices that are used, those of other libraries too.
void WaitForDevices();
// A second stream of the same device for copies beside the work. Nothing orders the two but WaitIn.
// It does not capture.
Stream CopyStream(Stream stream);

// Thrown where a caller cannot be told otherwise; ends one cell, not the run.
class OutOfDeviceMemory final : public std::bad_alloc {
 public:
  OutOfDeviceMemory(int64_t size_bytes, Stream stream);
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

// The same of page-locked memory of the host.
class OutOfPageLockedMemory final : public std::bad_alloc {
 public:
  explicit OutOfPageLockedMemory(int64_t size_bytes);
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

// 256-byte aligned, contents undefined; null when the device has no room.
void* Malloc(int64_t size_bytes, Stream stream);
void Free(void* data);

// Page-locked memory of the host that kernels, fills and copies on any device take as they take the
// device's own, at the speed of the bus; the host does not touch it. Aligned and undefined
// likewise; null when there is no room. FreeMapped waits for the streams of all devices.
void* MallocMapped(int64_t size_bytes);
void FreeMapped(void* data);
// What the device memory holds is undefined until it is written again. Tells the emulator, which
// then finds reads that do not wait for a copy; a device is not asked.
void Discard(void* data, int64_t size_bytes);

// Page-locked host memory: CopyToDevice of it returns at once, and it may be reused only when an
// event recorded behind the copy was waited for. Null when there is no room.
void* MallocHost(int64_t size_bytes);
void FreeHost(void* data);

// Other host memory is pageable: it may be reused when these return. CopyToHost waits for the
// stream.
void CopyToDevice(void* to, const void* from, int64_t size_bytes, Stream stream);
void CopyToHost(void* to, const void* from, int64_t size_bytes, Stream stream);
void CopyOnDevice(void* to, const void* from, int64_t size_bytes, Stream stream);
void Fill(void* to, int byte, int64_t size_bytes, Stream stream);
// Whether CopyPeer can go between the devices of the two streams.
bool ReachEachOther(Stream one, Stream other);
// From memory of one device to that of another: behind what went to both streams, and before what
// goes to them from here on. The host does not wait. Throws NotRecordable while a Recorder is open.
void CopyPeer(void* to, Stream to_stream, const void* from, Stream from_stream, int64_t size_bytes);

Event CreateEvent(Stream stream);
void DestroyEvent(Event event);
void Record(Event event, Stream stream);
void WaitFor(Event event);
// What goes to `stream` from here on is done when the event is; the host does not wait.
void WaitIn(Stream stream, Event event);
// Waits for `end`.
double MillisecondsBetween(Event begin, Event end);

}  // namespace kvgauge::cuda
