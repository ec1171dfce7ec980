// SPDX-License-Identifier: Apache-2.0
// Small host tables that a call's kernels read, sent in one copy, and scratch memory of a device.
//
// A Tables object is filled and sent once a call. Its addresses stay what they are until a call
// needs more room than any before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/check.h"
#include "cuda/device/graph_recorder.h"

namespace kvgauge::cuda {

// Grows, never shrinks; contents are lost when it grows. Where there is no room to grow it throws
// OutOfDeviceMemory, holds nothing, and may be asked again.
class Scratch {
 public:
  explicit Scratch(Stream stream) : stream_(stream) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (data_ != nullptr) Free(data_);
  }

  void* AtLeast(int64_t size_bytes) {
    if (size_bytes <= size_bytes_) return data_;
    if (Recorder::Open() != nullptr) throw NotRecordable();
    if (data_ != nullptr) Free(data_);
    size_bytes_ = 0;
    // Some more than is asked for, where there is some more.
    for (const int64_t wanted : {size_bytes + size_bytes / 2, size_bytes}) {
      data_ = Malloc(wanted, stream_);
      if (data_ == nullptr) continue;
      size_bytes_ = wanted;
      return data_;
    }
    throw OutOfDeviceMemory(size_bytes, stream_);
  }
  template <class T>
  T* Of(int64_t count) {
    return static_cast<T*>(AtLeast(count * static_cast<int64_t>(sizeof(T))));
  }

 private:
  const Stream stream_;
  void* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

class Tables {
 public:
  // `stream`: of the device that they are on.
  explicit Tables(Stream stream) : stream_(stream), memory_(stream) {}
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;
  ~Tables() {
    for (Staging& staging : stagings_) {
      if (staging.sent == nullptr) continue;
      WaitFor(staging.sent);  // the copy from it
      DestroyEvent(staging.sent);
      FreeHost(staging.data);
    }
  }

  // Where something is filled in on the host, and where kernels find it.
  template <class T>
  struct Place {
    T* host;
    T* device;
  };

  // Forgets what was put before. At most `size_bytes` follow, kGap more for each Put.
  static constexpr int64_t kGap = 16;
  static constexpr int64_t kRound = 256;
  void Begin(int64_t size_bytes) {
    used_ = 0;
    size_bytes_ = size_bytes;
    if (Recorder* open = Recorder::Open(); open != nullptr) {
      // Rounded, so that a list may grow and what comes after stays where it is.
      const Recorder::Place place = open->Stage((size_bytes + kRound - 1) / kRound * kRound);
      host_ = place.host;
      device_ = place.device;
      return;
    }
    Recorder::CountSent((size_bytes + kRound - 1) / kRound * kRound);
    device_ = static_cast<std::byte*>(memory_.AtLeast(size_bytes));
    // The copy before the last was long ago: mostly it is done.
    turn_ = 1 - turn_;
    Staging& staging = stagings_[turn_];
    if (staging.sent == nullptr) {
      staging.sent = CreateEvent(stream_);
    } else {
      WaitFor(staging.sent);
    }
    if (staging.size_bytes < size_bytes) {
      FreeHost(staging.data);
      staging.size_bytes = 0;
      staging.data = static_cast<std::byte*>(MallocHost(size_bytes + size_bytes / 2));
      if (staging.data == nullptr) throw std::bad_alloc();
      staging.size_bytes = size_bytes + size_bytes / 2;
    }
    host_ = staging.data;
  }
  template <class T>
  Place<T> Put(int64_t count) {
    used_ = (used_ + kGap - 1) / kGap * kGap;
    const int64_t at = used_;
    used_ += count * static_cast<int64_t>(sizeof(T));
    KVG_CHECK(used_ <= size_bytes_, "cuda: tables are too small");
    return {reinterpret_cast<T*>(host_ + at), reinterpret_cast<T*>(device_ + at)};
  }
  template <class T>
  T* Put(std::span<const T> values) {
    const Place<T> place = Put<T>(static_cast<int64_t>(values.size()));
    if (!values.empty()) std::memcpy(place.host, values.data(), values.size_bytes());
    return place.device;
  }
  // Everything put is on the device before kernels that are launched after this. Nothing waits.
  void Send(Stream stream) {
    if (Recorder::Open() != nullptr) return;
    if (used_ > 0) CopyToDevice(device_, stagings_[turn_].data, used_, stream);
    Record(stagings_[turn_].sent, stream);
  }

 private:
  struct Staging {
    std::byte* data = nullptr;
    int64_t size_bytes = 0;
    Event sent = nullptr;
  };
  const Stream stream_;
  Staging stagings_[2];
  int turn_ = 0;
  Scratch memory_;
  std::byte *host_ = nullptr, *device_ = nullptr;  // of this call
  int64_t size_bytes_ = 0, used_ = 0;
};

}  // namespace kvgauge::cuda
