// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstring>
#include <functional>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "cuda/backend_parts.h"
#include "cuda/call_tables.h"
#include "cuda/device/context.h"
#include "cuda/device/graph_recorder.h"
#include "cuda/device/mapped.h"
#include "cuda/fetch_kernels.h"
#include "cuda/pages_kernels.h"
#include "kernels/devices.h"

namespace kvgauge::cuda {
namespace {

void FreeDevice(void* data, int64_t) { Free(data); }
void FreeOnHost(void* data, int64_t) { GiveMapped(data); }

class DeviceWork final : public RepeatedWork {
 public:
  explicit DeviceWork(std::shared_ptr<Context> context)
      : context_(std::move(context)), recorder_(context_->stream()) {}

  void Run(const std::function<void()>& body) override { recorder_.Run(body); }
  Counts counts() const override {
    const Recorder::Counts& counts = recorder_.counts();
    return {counts.plain, counts.recorded, counts.replayed};
  }

 private:
  std::shared_ptr<Context> context_;
  Recorder recorder_;
};

class DeviceMemoryOps final : public MemoryOps, public OtherDevices {
 public:
  DeviceMemoryOps(std::shared_ptr<Context> context, std::vector<std::unique_ptr<Ops>> others)
      : context_(std::move(context)), others_(std::move(others)), tables_(context_->stream()) {}

  std::span<const std::unique_ptr<Ops>> others() const override { return others_; }

  Buffer Allocate(int64_t size_bytes) override {
    KVG_CHECK(size_bytes >= 0, "negative buffer size");
    if (size_bytes == 0) return {};
    void* data = Malloc(size_bytes, context_->stream());
    if (data == nullptr) throw OutOfDeviceMemory(size_bytes, context_->stream());
    Fill(data, 0, size_bytes, context_->stream());
    return {data, size_bytes, Device::kCuda, FreeDevice};
  }

  Buffer AllocateOnHost(int64_t size_bytes) override {
    KVG_CHECK(size_bytes > 0, "a buffer on the host holds something");
    void* data = TakeMapped(size_bytes, context_->stream());
    if (data == nullptr) throw OutOfPageLockedMemory(size_bytes);
    Fill(data, 0, size_bytes, context_->stream());
    NoteWriteToMapped();
    return {data, size_bytes, Device::kCuda, FreeOnHost};
  }

  void Copy(const Tensor& from, Tensor to) override {
    KVG_CHECK(from.IsContiguous() && to.IsContiguous(), "copy needs contiguous tensors");
    const int64_t size_bytes = from.SizeBytes();
    KVG_CHECK(size_bytes == to.SizeBytes(), "copy between different sizes");
    if (size_bytes == 0) return;
    const bool from_host = from.device == Device::kHost, to_host = to.device == Device::kHost;
    NoteTarget(to);
    if (from_host && to_host) {
      std::memmove(to.data, from.data, static_cast<size_t>(size_bytes));
    } else if (from_host) {
      Send(to.data, from.data, size_bytes, StreamOfMemory(to));
    } else if (to_host) {
      CopyToHost(to.data, from.data, size_bytes, StreamOfMemory(from));
    } else {
      CopyBetween(to, StreamOfMemory(to), from, StreamOfMemory(from));
    }
  }

  // Tables hold the numbers and where they go.
  void CopyAll(std::span<const CopyJob> jobs) override {
    std::vector<SmallCopy> small;
    std::vector<PageCopy> whole;
    int64_t bytes = Tables::kGap;
    for (const CopyJob& job : jobs) {
      KVG_CHECK(job.from.SizeBytes() == job.to.SizeBytes(), "copy between different sizes");
      if (IsWhole(job)) {
        NoteTarget(job.to);
        whole.push_back({job.from.data, job.to.data, job.to.SizeBytes(), nullptr, 0, 0});
        continue;
      }
      if (!IsSmall(job)) {
        Copy(job.from, job.to);
        continue;
      }
      small.push_back({job.from.As<const uint32_t>(), job.to.As<uint32_t>(), job.to.Numel()});
      bytes += job.to.SizeBytes() + Tables::kGap + static_cast<int64_t>(sizeof(SmallCopy));
    }
    if (small.empty() && whole.empty()) return;
    try {
      tables_.Begin(bytes + std::ssize(whole) * static_cast<int64_t>(sizeof(PageCopy)) +
                    Tables::kGap);
    } catch (const std::bad_alloc&) {  // it is no fault: they need no room one by one
      for (const CopyJob& job : jobs) {
        if (IsSmall(job) || IsWhole(job)) Copy(job.from, job.to);
      }
      return;
    }
    for (SmallCopy& copy : small) {
      copy.from = tables_.Put(std::span(copy.from, static_cast<size_t>(copy.count)));
    }
    const SmallCopy* const copies = tables_.Put(std::span<const SmallCopy>(small));
    const PageCopy* const pages = tables_.Put(std::span<const PageCopy>(whole));
    tables_.Send(context_->stream());
    CopySmall(copies, std::ssize(small), context_->stream());
    CopyWholePages(pages, std::ssize(whole), kManyBlocks, context_->stream());
  }

  void Clear(Tensor to) override {
    KVG_CHECK(to.device == Device::kCuda && to.IsContiguous(), "not contiguous device memory");
    NoteTarget(to);
    if (to.SizeBytes() > 0) Fill(to.data, 0, to.SizeBytes(), context_->stream());
  }

  // Stages in Python compute on streams of other libraries.
  void Synchronize() override { WaitForDevices(); }
  void TakeBack() override { cuda::TakeBack(); }

  int64_t FreeBytes() const override { return cuda::FreeBytes(context_->stream()); }

  int64_t ScratchBytes(const PassSize& size) const override {
    return LinearScratchBytes(size) + AttentionScratchBytes(size);
  }

  std::unique_ptr<RepeatedWork> MakeRepeatedWork() override {
    return std::make_unique<DeviceWork>(context_);
  }

 private:
  // Where work on that memory goes: mapped memory of the host is this device's.
  Stream StreamOfMemory(const Tensor& t) const {
    const Stream stream = StreamHolding(t.data);
    return stream == nullptr ? context_->stream() : stream;
  }
  void CopyBetween(const Tensor& to, Stream to_stream, const Tensor& from, Stream from_stream) {
    const int64_t size_bytes = from.SizeBytes();
    if (to_stream == from_stream) {
      CopyOnDevice(to.data, from.data, size_bytes, to_stream);
    } else if (ReachEachOther(to_stream, from_stream)) {
      CopyPeer(to.data, to_stream, from.data, from_stream, size_bytes);
    } else {
      std::vector<std::byte> host(static_cast<size_t>(size_bytes));
      CopyToHost(host.data(), from.data, size_bytes, from_stream);
      CopyToDevice(to.data, host.data(), size_bytes, to_stream);
    }
  }
  static void NoteTarget(const Tensor& to) {
    if (AnyMapped() && MappedLookup().Holds(to.data)) NoteWriteToMapped();
  }
  // Between the device and its memory on the host, as pages are.
  static bool IsWhole(const CopyJob& job) {
    if (!AnyMapped()) return false;
    MappedLookup mapped;
    if (!mapped.Holds(job.from.data) && !mapped.Holds(job.to.data)) return false;
    constexpr uintptr_t kLine = 16;
    const auto at = [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data); };
    return job.from.device != Device::kHost && job.to.device != Device::kHost &&
           job.from.IsContiguous() && job.to.IsContiguous() && job.to.SizeBytes() > 0 &&
           (at(job.from) | at(job.to) | static_cast<uintptr_t>(job.to.SizeBytes())) % kLine == 0;
  }
  static bool IsSmall(const CopyJob& job) {
    constexpr int64_t kMostNumbers = 16;
    return job.from.device == Device::kHost && job.to.device != Device::kHost &&
           SizeOf(job.to.dtype) == 4 && job.from.IsContiguous() && job.to.IsContiguous() &&
           job.to.Numel() <= kMostNumbers;
  }
  static void Send(void* to, const void* from, int64_t size_bytes, Stream stream) {
    if (Recorder* open = Recorder::Open(); open != nullptr) {
      const Recorder::Place place = open->Stage(size_bytes);
      std::memcpy(place.host, from, static_cast<size_t>(size_bytes));
      CopyOnDevice(to, place.device, size_bytes, stream);
      return;
    }
    Recorder::CountSent(size_bytes);
    CopyToDevice(to, from, size_bytes, stream);
  }

  std::shared_ptr<Context> context_;
  std::vector<std::unique_ptr<Ops>> others_;
  Tables tables_;
};

}  // namespace

std::unique_ptr<MemoryOps> MakeCudaMemory(std::shared_ptr<Context> context,
                                          std::vector<std::unique_ptr<Ops>> others) {
  return std::make_unique<DeviceMemoryOps>(std::move(context), std::move(others));
}

}  // namespace kvgauge::cuda
