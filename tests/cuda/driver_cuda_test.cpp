// SPDX-License-Identifier: Apache-2.0
// Which device the driver's calls of the CUDA runtime go to, with a runtime made for the test that
// has two devices and does nothing.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "cuda/call_tables.h"
#include "cuda/device/driver.h"
#include "cuda/device/graph_recorder.h"

namespace {

using kvgauge::StrCat;

int current = 0;  // device, of the only thread
int full = -1;    // the device without room for a context
bool lost = false;
bool no_begin = false, no_capture = false;
bool unloading = false;  // the runtime, as the process ends
int no_launch = 0;       // launches of graphs to come that find no room
int live_graphs = 0, launches = 0;
const void* locked = nullptr;    // the host's memory that was locked last
std::vector<std::string> calls;  // that work goes to, with the device that was current

// Streams, pools and events are numbers: 10 * device + 1 and so on.
template <class T>
T Handle(int number) {
  return reinterpret_cast<T>(static_cast<uintptr_t>(number));
}
template <class T>
int NumberOf(T handle) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(handle));
}
cudaError_t Note(const char* what, cudaStream_t stream) {
  if (unloading) return cudaErrorCudartUnloading;
  calls.push_back(StrCat(what, " ", NumberOf(stream), " on ", current));
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "no more of it"; }
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 2;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  properties->name[0] = 'A';
  properties->major = 9;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (unloading) return cudaErrorCudartUnloading;
  current = device;
  return lost && device == 1 ? cudaErrorDevicesUnavailable : cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = size_t{1} << 30;
  return current == full ? cudaErrorMemoryAllocation : cudaSuccess;
}
// The second device reads the host's memory where it lies.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device) {
  *value = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return Note("synchronize", nullptr); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  *pool = Handle<cudaMemPool_t>(10 * device + 3);
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *static_cast<uint64_t*>(value) = 0;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* access, size_t) {
  calls.push_back(StrCat("open ", NumberOf(pool), " to ", access->location.id));
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = Handle<cudaStream_t>(10 * current + 1);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = Handle<cudaStream_t>(10 * current + 2);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return Note("wait", stream); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return Note(StrCat("wait for ", NumberOf(event), " in").c_str(), stream);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return no_begin ? cudaErrorIllegalState : cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = no_capture ? nullptr : Handle<cudaGraph_t>(1);
  return no_capture ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) {
  --live_graphs;
  return unloading ? cudaErrorCudartUnloading : cudaSuccess;
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t, cudaGraph_t, cudaGraphExecUpdateResultInfo*) {
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* graph, cudaGraph_t, unsigned long long) {
  *graph = Handle<cudaGraphExec_t>(++live_graphs);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t stream) {
  ++launches;
  if (no_launch == 0) return Note("graph", stream);
  --no_launch;
  return cudaErrorMemoryAllocation;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = Handle<cudaEvent_t>(10 * current + 4);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t) {
  return unloading ? cudaErrorCudartUnloading : cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Note(StrCat("record ", NumberOf(event), " in").c_str(), stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  calls.push_back(StrCat("reach ", NumberOf(event)));
  return unloading ? cudaErrorCudartUnloading : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaHostAlloc(void** data, size_t size_bytes, unsigned) {
  *data = std::malloc(size_bytes);
  locked = *data;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  calls.emplace_back("unlock");
  return unloading ? cudaErrorCudartUnloading : cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** data, size_t, cudaMemPool_t pool, cudaStream_t stream) {
  *data = Handle<void*>(1000 * (NumberOf(pool) / 10 + 1));
  return Note("take", stream);
}
cudaError_t cudaFreeAsync(void*, cudaStream_t stream) { return Note("give", stream); }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  *attributes = {};
  const bool is_handle = reinterpret_cast<uintptr_t>(data) < 10000;
  attributes->device = is_handle ? NumberOf(data) / 1000 - 1 : -1;
  attributes->type = is_handle        ? cudaMemoryTypeDevice
                     : data == locked ? cudaMemoryTypeHost
                                      : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t stream) {
  return Note("copy", stream);
}
cudaError_t cudaMemcpyPeerAsync(void*, int to, const void*, int from, size_t, cudaStream_t stream) {
  return Note(StrCat("copy from ", from, " to ", to, " in").c_str(), stream);
}
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t stream) {
  return Note("fill", stream);
}

}  // extern "C"

namespace kvgauge::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Called() { return std::exchange(calls, {}); }

// The stream of a device that is used from now on.
Stream BegunStream(int device) {
  DeviceInfo info;
  std::string why;
  EXPECT_TRUE(UseDevice(device, &info, &why)) << why;
  return StreamOf(device);
}

// Devices are used until the process ends, so the order matters.
TEST(DriverOnCuda, WorkGoesToTheDeviceOfItsStream) {
  DeviceInfo info;
  std::string why;
  ASSERT_TRUE(UseDevice(0, &info, &why)) << why;
  const Stream first = StreamOf(0);
  void* const of_first = Malloc(4, first);
  EXPECT_THAT(Called(), ElementsAre("take 1 on 0"));

  // Another library of the process chooses its device.
  cudaSetDevice(1);
  TakeBack();
  Fill(of_first, 0, 4, first);
  cudaSetDevice(1);
  WaitForDevices();
  EXPECT_THAT(Called(), ElementsAre("fill 1 on 0", "synchronize 0 on 0"));

  // One that cannot be used leaves the other as it was.
  full = 1;
  EXPECT_FALSE(UseDevice(1, &info, &why));
  EXPECT_THAT(why, HasSubstr("device 1 (A) has too little memory left to begin with"));
  Fill(of_first, 0, 4, first);
  EXPECT_THAT(Called(), ElementsAre("fill 1 on 0"));
  full = -1;
  lost = true;
  EXPECT_FALSE(UseDevice(1, &info, &why));
  EXPECT_THAT(why, HasSubstr("device 1 (A) cannot be used"));
  Fill(of_first, 0, 4, first);
  EXPECT_THAT(Called(), ElementsAre("fill 1 on 0"));
  lost = false;

  ASSERT_TRUE(UseDevice(1, &info, &why)) << why;
  EXPECT_THAT(Called(), ElementsAre("open 13 to 0", "open 3 to 1"));
  const Stream second = StreamOf(1);
  void* const of_second = Malloc(4, second);
  Fill(of_first, 0, 4, first);
  Fill(of_second, 0, 4, CopyStream(second));
  EXPECT_THAT(Called(), ElementsAre("take 11 on 1", "fill 1 on 0", "fill 12 on 1"));
  EXPECT_EQ(StreamHolding(of_first), first);
  EXPECT_EQ(StreamHolding(of_second), second);

  // Behind what went to both, and before what follows on both.
  CopyPeer(of_second, second, of_first, first, 4);
  EXPECT_THAT(Called(), ElementsAre("record 14 in 11 on 1", "wait for 14 in 1 on 0",
                                    "copy from 0 to 1 in 1 on 0", "record 4 in 1 on 0",
                                    "wait for 4 in 11 on 1"));
  Free(of_second);
  Free(of_first);
  EXPECT_THAT(Called(), ElementsAre("give 11 on 1", "give 1 on 0"));
}

// Pageable memory may be reused when it was copied, although the second device does not stage it.
TEST(DriverOnCuda, PageableMemoryIsReadWhenACopyReturns) {
  const Stream first = BegunStream(0), second = BegunStream(1);
  void *const of_first = Malloc(4, first), *const of_second = Malloc(4, second);
  void* const pinned = MallocHost(4);
  const int pageable = 0;
  Called();
  CopyToDevice(of_first, &pageable, 4, first);
  CopyToDevice(of_second, pinned, 4, second);
  EXPECT_THAT(Called(), ElementsAre("copy 1 on 0", "copy 11 on 1"));
  CopyToDevice(of_second, &pageable, 4, second);
  EXPECT_THAT(Called(), ElementsAre("copy 11 on 1", "wait 11 on 1"));
  FreeHost(pinned);
  Free(of_first);
  Free(of_second);
  Called();
}

TEST(DriverOnCuda, AGraphIsGivenUpWhereItsCaptureFails) {
  const Stream stream = BegunStream(0);
  Graph graph = nullptr;
  ASSERT_TRUE(BeginCapture(stream));
  ASSERT_TRUE(EndCapture(stream, &graph));
  EXPECT_EQ(live_graphs, 1);
  no_capture = true;
  ASSERT_TRUE(BeginCapture(stream));
  EXPECT_FALSE(EndCapture(stream, &graph));
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(live_graphs, 0);
  no_capture = false;
}

// What the host fills in is not touched before the copy of it is done.
TEST(DriverOnCuda, StagedMemoryIsKeptUntilItWasCopied) {
  const Stream stream = BegunStream(0);
  {
    Tables tables(stream);
    tables.Begin(64);
    tables.Put<int>(1);
    Called();
    tables.Send(stream);
    EXPECT_THAT(Called(), ElementsAre("copy 1 on 0", "record 4 in 1 on 0"));
  }
  EXPECT_THAT(Called(), ElementsAre("reach 4", "unlock", "give 1 on 0"));

  Recorder recorder(stream);
  const auto body = [] {
    if (Recorder* const open = Recorder::Open(); open != nullptr) open->Stage(16);
  };
  recorder.Run(body);  // the first is not recorded
  no_launch = 1;
  Called();
  recorder.Run(body);
  EXPECT_EQ(recorder.counts().plain, 2);
  const std::vector<std::string> refused = Called();
  EXPECT_THAT(std::vector<std::string>(refused.end() - 2, refused.end()),
              ElementsAre("copy 1 on 0", "record 4 in 1 on 0"));
}

// A graph that finds no room is given up: the work is done as it comes, and what is tried again is
// another graph, more and more seldom.
TEST(DriverOnCuda, AGraphThatIsNotLaunchedIsCountedAsNone) {
  const Stream stream = BegunStream(0);
  Recorder recorder(stream);
  const auto body = [] {};
  const auto expect = [&recorder](int64_t plain, int64_t recorded, int64_t replayed) {
    EXPECT_EQ(recorder.counts().plain, plain);
    EXPECT_EQ(recorder.counts().recorded, recorded);
    EXPECT_EQ(recorder.counts().replayed, replayed);
  };
  const int before = live_graphs;
  for (int i = 0; i < 3; ++i) recorder.Run(body);
  expect(1, 1, 1);
  EXPECT_EQ(live_graphs, before + 1);
  launches = 0;
  no_launch = 1;
  recorder.Run(body);
  expect(2, 1, 1);
  EXPECT_EQ(launches, 1);
  EXPECT_EQ(live_graphs, before);
  for (int i = 0; i < 2; ++i) recorder.Run(body);
  expect(2, 2, 2);
  no_launch = 1000;
  launches = 0;
  for (int i = 0; i < 200; ++i) recorder.Run(body);
  expect(202, 2, 2);
  EXPECT_LE(launches, 12);
  EXPECT_EQ(live_graphs, before);
  no_launch = 0;
  for (int i = 0; i < 80; ++i) recorder.Run(body);
  EXPECT_EQ(recorder.counts().recorded, 3);
}

// A capture that does not begin leaves no graph behind: its record is gone with it.
TEST(DriverOnCuda, AGraphIsGivenUpWhereItsCaptureDoesNotBegin) {
  const Stream stream = BegunStream(0);
  void* const data = Malloc(8, stream);
  Recorder recorder(stream);
  int64_t size_bytes = 4;
  const auto body = [&] {
    if (size_bytes > 0) Fill(data, 0, size_bytes, stream);
  };
  const int before = live_graphs;
  for (int i = 0; i < 2; ++i) recorder.Run(body);
  size_bytes = 6;
  recorder.Run(body);
  EXPECT_EQ(recorder.counts().recorded, 2);
  EXPECT_EQ(live_graphs, before + 2);
  no_begin = true;
  size_bytes = 8;
  recorder.Run(body);
  no_begin = false;
  EXPECT_EQ(recorder.counts().plain, 2);
  EXPECT_EQ(live_graphs, before + 1);
  size_bytes = 0;
  recorder.Run(body);
  EXPECT_EQ(recorder.counts().replayed, 0);
  Free(data);
  Called();
}

// What a call gave up that came to nothing goes once, and makes room for the work that is done
// instead.
TEST(DriverOnCuda, WhatAComparisonFreesGoesBeforeTheWork) {
  const Stream stream = BegunStream(0);
  void* const kept = Malloc(4, stream);
  Recorder recorder(stream);
  void* old = nullptr;
  bool waits = false;
  const auto body = [&] {
    Fill(kept, 0, 4, stream);
    Free(std::exchange(old, nullptr));
    if (waits) Wait(stream);
  };
  for (int i = 0; i < 2; ++i) recorder.Run(body);
  ASSERT_EQ(recorder.counts().recorded, 1);
  old = Malloc(4, stream);
  Called();
  recorder.Run(body);
  EXPECT_EQ(recorder.counts().replayed, 1);
  EXPECT_THAT(Called(),
              ElementsAre("reach 4", "graph 1 on 0", "record 4 in 1 on 0", "give 1 on 0"));
  waits = true;
  old = Malloc(4, stream);
  Called();
  recorder.Run(body);
  EXPECT_EQ(recorder.counts().plain, 2);
  EXPECT_THAT(Called(), ElementsAre("reach 4", "give 1 on 0", "fill 1 on 0", "wait 1 on 0"));
  Free(kept);
  Called();
}

// Objects of static lifetime may go when the runtime is already gone.
TEST(DriverOnCuda, NothingIsAskedOfARuntimeThatIsGone) {
  const Stream stream = BegunStream(0);
  {
    Tables tables(stream);
    tables.Begin(64);
    tables.Put<int>(1);
    tables.Send(stream);
    Recorder recorder(stream);
    for (int i = 0; i < 2; ++i) recorder.Run([] {});
    EXPECT_EQ(recorder.counts().recorded, 1);
    unloading = true;
  }
  FreeMapped(MallocHost(4));
  unloading = false;
}

}  // namespace
}  // namespace kvgauge::cuda
