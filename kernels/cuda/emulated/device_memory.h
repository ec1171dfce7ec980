// SPDX-License-Identifier: Apache-2.0
// Emulated device memory: a range of addresses for each device, which faults unless a DeviceAccess
// lives that was made in work of that device.
#pragma once

#include <cstdint>

namespace kvgauge::cuda {
class ProductLibrary;
struct DeviceQuery;
}  // namespace kvgauge::cuda

namespace kvgauge::cuda::emulated {

class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;

 private:
  const int device_;
};

// How many devices there are, at most kMostDevices; one at first. Not while a later one is used.
// Work of one device cannot touch the memory of another.
constexpr int kMostDevices = 8;
void SetDevices(int count);
// Makes a device one of another kind; they are 9.0 at first.
void SetCapability(int device, int major, int minor);
// The device ends the program, as a lost one does, when so many more launches have gone to it.
void LoseDevice(int device, int64_t launches);

// What a block may ask for of shared memory; at first what one of 9.0 may.
inline constexpr int64_t kBlockSharedBytes = int64_t{227} * 1024;
void SetBlockSharedBytes(int64_t size_bytes);

// Whether copies can go straight from one device to another; they can at first.
void SetPeers(bool reach);

// Another library makes a device the current one of the calling thread. Work of a device while
// another one is current ends the program; on a device the runtime refuses it, or the other does
// it.
void ChooseForThread(int device);

// Whether it is memory of any device, or mapped memory of the host.
bool IsDeviceMemory(const void* data);
// The bytes of all buffers of a device that were not freed, without mapped ones; and the most that
// they ever were.
int64_t AllocatedBytes(int device = 0);
int64_t PeakBytes(int device = 0);
// Malloc refuses what would bring AllocatedBytes above this; the start is all there is.
void SetCapacity(int64_t size_bytes, int device = 0);
// After `granted` more allocations, `refused` find no room; 0, 0 ends it.
void RefuseAllocations(int64_t granted, int64_t refused, int device = 0);
// The refusals among them that are yet to come.
int64_t RefusalsLeft(int device = 0);
// The same of mapped memory.
int64_t MappedBytes();
void SetMappedCapacity(int64_t size_bytes);

// The device is one that answers so when it is asked for; null: the emulated one again. Not while
// anybody uses it.
void SetAsked(const DeviceQuery* asked);

// Whether Ops that are made from here on find the instructions of warpgroup.h, and what bits those
// give: those of mma.h, or the first 8 of 16 products are rounded before the others are added.
enum class Warpgroups { kNone, kAsMma, kInHalves };
void SetWarpgroups(Warpgroups warpgroups);
Warpgroups GivenWarpgroups();
// Products that were done on them, in this process, each by its four warps.
int64_t WarpgroupProducts();

// What Ops that are made from here on find as the vendor's library; null: there is none.
void SetProductLibrary(ProductLibrary* library);

// What went between host and device so far, in this process.
struct Traffic {
  int64_t uploads = 0, downloads = 0;  // copies
  int64_t upload_bytes = 0, download_bytes = 0;
  int64_t allocations = 0;  // of device memory
  int64_t launches = 0;     // of kernels, those of graphs too
  int64_t waits = 0;        // of the host for the stream, besides those of downloads
  int64_t overlapped = 0;   // pieces of work of the copy stream
  int64_t peer_copies = 0;  // from one device to another

  Traffic operator-(const Traffic& before) const {
    return {uploads - before.uploads,
            downloads - before.downloads,
            upload_bytes - before.upload_bytes,
            download_bytes - before.download_bytes,
            allocations - before.allocations,
            launches - before.launches,
            waits - before.waits,
            overlapped - before.overlapped,
            peer_copies - before.peer_copies};
  }
};
Traffic TrafficSoFar();
// Kernels that were launched on a device.
int64_t LaunchesOf(int device);
void CountLaunch();

// Graphs of this process: made anew, made to do something else, launched.
struct GraphCounts {
  int64_t made = 0, updated = 0, launched = 0;
};
GraphCounts GraphsSoFar();

}  // namespace kvgauge::cuda::emulated
