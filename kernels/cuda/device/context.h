// SPDX-License-Identifier: Apache-2.0
// What the op groups of one Ops share: the stream all work is submitted to, in order, and scratch.
// One thread drives it.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/device/driver.h"

namespace kvgauge::cuda {

class Context {
 public:
  // Precondition: UseDevice has begun to use the device.
  explicit Context(int device);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  int device() const { return device_; }
  Stream stream() const { return stream_; }
  const DeviceInfo& info() const { return info_; }
  int multiprocessors() const { return info_.multiprocessors; }
  // Device memory that scratch holds, used or not; and the most it ever held.
  int64_t scratch_bytes() const { return held_bytes_; }
  int64_t peak_scratch_bytes() const { return peak_bytes_; }

 private:
  friend class ScratchScope;
  struct Chunk {
    char* data;
    int64_t size_bytes;
  };
  void* Take(int64_t size_bytes);

  const int device_;
  const Stream stream_;
  DeviceInfo info_;
  std::vector<Chunk> chunks_;
  size_t current_ = 0;  // chunk
  int64_t used_ = 0;    // of the current chunk
  int64_t held_bytes_ = 0, peak_bytes_ = 0;
};

// ScratchScope of one operation, given back when it goes out of scope. Work that was submitted
// before may still be using it: whoever takes it next is behind that work in the stream. Scopes
// nest.
class ScratchScope {
 public:
  explicit ScratchScope(Context& context)
      : context_(context), chunk_(context.current_), used_(context.used_) {}
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;
  ~ScratchScope();

  // 256-byte aligned, contents undefined. Throws OutOfDeviceMemory.
  template <class T>
  T* Take(int64_t count) {
    return static_cast<T*>(context_.Take(count * static_cast<int64_t>(sizeof(T))));
  }
  // The same, holding a copy of host memory.
  template <class T>
  T* Upload(const T* host, int64_t count) {
    T* data = Take<T>(count);
    if (count > 0) {
      CopyToDevice(data, host, count * static_cast<int64_t>(sizeof(T)), context_.stream());
    }
    return data;
  }

 private:
  Context& context_;
  size_t chunk_;
  int64_t used_;
};

}  // namespace kvgauge::cuda
