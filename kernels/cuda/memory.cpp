// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <utility>

#include "cuda/backend_parts.h"
#include "cuda/device/context.h"

namespace kvgauge::cuda {
namespace {

void FreeDevice(void* data, int64_t) { Free(data); }

class DeviceMemoryOps final : public MemoryOps {
 public:
  explicit DeviceMemoryOps(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  Buffer Allocate(int64_t size_bytes) override {
    KVG_CHECK(size_bytes >= 0, "negative buffer size");
    if (size_bytes == 0) return {};
    void* data = Malloc(size_bytes);
    if (data == nullptr) throw OutOfDeviceMemory(size_bytes);
    Fill(data, 0, size_bytes, context_->stream());
    return {data, size_bytes, Device::kCuda, FreeDevice};
  }

  void Copy(const Tensor& from, Tensor to) override {
    KVG_CHECK(from.IsContiguous() && to.IsContiguous(), "copy needs contiguous tensors");
    const int64_t size_bytes = from.SizeBytes();
    KVG_CHECK(size_bytes == to.SizeBytes(), "copy between different sizes");
    if (size_bytes == 0) return;
    const bool from_host = from.device == Device::kHost, to_host = to.device == Device::kHost;
    if (from_host && to_host) {
      std::memmove(to.data, from.data, static_cast<size_t>(size_bytes));
    } else if (from_host) {
      CopyToDevice(to.data, from.data, size_bytes, context_->stream());
    } else if (to_host) {
      CopyToHost(to.data, from.data, size_bytes, context_->stream());
    } else {
      CopyOnDevice(to.data, from.data, size_bytes, context_->stream());
    }
  }

  void Synchronize() override { Wait(context_->stream()); }

  int64_t FreeBytes() const override { return cuda::FreeBytes(); }

  int64_t ScratchBytes(const PassSize& size) const override {
    return LinearScratchBytes(size) + AttentionScratchBytes(size);
  }

 private:
  std::shared_ptr<Context> context_;
};

}  // namespace

std::unique_ptr<MemoryOps> MakeCudaMemory(std::shared_ptr<Context> context) {
  return std::make_unique<DeviceMemoryOps>(std::move(context));
}

}  // namespace kvgauge::cuda
