// SPDX-License-Identifier: Apache-2.0
// What tests of kernels on the emulator share.
#pragma once

#include <vector>

#include "cuda/device/driver.h"
#include "cuda/emulated/device_memory.h"

namespace kvgauge::cuda {

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : size_(values.size()) {
    data_ = static_cast<T*>(Malloc(static_cast<int64_t>(size_ * sizeof(T)), nullptr));
    CopyToDevice(data_, values.data(), static_cast<int64_t>(size_ * sizeof(T)), nullptr);
  }
  explicit DeviceArray(size_t size) : DeviceArray(std::vector<T>(size)) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { Free(data_); }
  T* get() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> out(size_);
    CopyToHost(out.data(), data_, static_cast<int64_t>(size_ * sizeof(T)), nullptr);
    return out;
  }

 private:
  size_t size_;
  T* data_;
};

// The device has warpgroups as long as this lives.
class WithWarpgroups {
 public:
  explicit WithWarpgroups(emulated::Warpgroups warpgroups) { emulated::SetWarpgroups(warpgroups); }
  WithWarpgroups(const WithWarpgroups&) = delete;
  WithWarpgroups& operator=(const WithWarpgroups&) = delete;
  ~WithWarpgroups() { emulated::SetWarpgroups(emulated::Warpgroups::kNone); }
};

}  // namespace kvgauge::cuda
