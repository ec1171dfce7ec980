// SPDX-License-Identifier: Apache-2.0
// Tensor: a view of memory somebody else owns. Buffer: owned memory on a device.
//
// Shapes are written outermost first; the innermost dimension is contiguous unless an op says it
// takes strides. A Tensor is a value: copying it copies the view. Neither type is thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "core/check.h"
#include "core/dtype.h"

namespace kvgauge {

enum class Device : uint8_t { kHost, kCuda };

inline constexpr int kMaxRank = 4;

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Device device = Device::kHost;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape = {};
  std::array<int64_t, kMaxRank> stride = {};  // in elements

  Tensor() = default;
  // Contiguous view.
  Tensor(void* memory, DType type, std::initializer_list<int64_t> dims,
         Device where = Device::kHost);

  bool empty() const { return data == nullptr; }
  int64_t Numel() const;
  int64_t SizeBytes() const { return Numel() * SizeOf(dtype); }
  bool IsContiguous() const;
  // Rows [begin, end) of the outermost dimension.
  Tensor Slice(int64_t begin, int64_t end) const;
  // The i-th entry of the outermost dimension; rank drops by one.
  Tensor operator[](int64_t i) const;
  // Same elements, new dims. Precondition: contiguous, same Numel.
  Tensor Reshape(std::initializer_list<int64_t> dims) const;

  // Typed access to host memory. Precondition: dtype matches, on the host.
  template <class T>
  T* As() const {
    return static_cast<T*>(data);
  }
  float* f32() const {
    KVG_CHECK(dtype == DType::kF32, "tensor is not f32");
    return As<float>();
  }
  int32_t* i32() const {
    KVG_CHECK(dtype == DType::kI32, "tensor is not i32");
    return As<int32_t>();
  }

  std::string DebugString() const;  // "bf16[3, 64]"
};

// Views of host arrays; const is cast away because a Tensor does not carry it: ops never write to
// an argument that is named as input.
Tensor View(std::span<const float> values, std::initializer_list<int64_t> dims);
Tensor View(std::span<const int32_t> values, std::initializer_list<int64_t> dims);

// Owned, 64-byte aligned memory. Move-only. Freed by the function that came with it, so a buffer
// of a device backend can outlive nothing but that backend's library.
class Buffer {
 public:
  using FreeFunction = void (*)(void* data, int64_t size_bytes);

  Buffer() = default;
  Buffer(void* data, int64_t size_bytes, Device device, FreeFunction free)
      : data_(data), size_bytes_(size_bytes), device_(device), free_(free) {}
  Buffer(Buffer&& other) noexcept { Swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) free_(data_, size_bytes_);
  }

  void* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }
  Device device() const { return device_; }
  // Contiguous view of the first elements. Precondition: it fits.
  Tensor As(DType dtype, std::initializer_list<int64_t> dims) const;

 private:
  void Swap(Buffer& other) noexcept;

  void* data_ = nullptr;
  int64_t size_bytes_ = 0;
  Device device_ = Device::kHost;
  FreeFunction free_ = nullptr;
};

// Zero-filled host memory. Large buffers come from fresh pages, so they are touched when used.
Buffer HostBuffer(int64_t size_bytes);

}  // namespace kvgauge
