// SPDX-License-Identifier: Apache-2.0
#include "cuda/device/context.h"

#include <algorithm>

#include "core/check.h"
#include "core/strings.h"
#include "cuda/device/graph_recorder.h"

namespace kvgauge::cuda {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kLeastChunk = int64_t{1} << 20;

}  // namespace

OutOfDeviceMemory::OutOfDeviceMemory(int64_t size_bytes, Stream stream)
    : message_(StrCat("out of device memory: ", HumanBytes(size_bytes), " more are needed, ",
                      HumanBytes(FreeBytes(stream)), " are free")) {}

OutOfPageLockedMemory::OutOfPageLockedMemory(int64_t size_bytes)
    : message_(StrCat("out of page-locked memory of the host: ", HumanBytes(size_bytes),
                      " more are needed (ulimit -l may bound it)")) {}

Context::Context(int device) : device_(device), stream_(StreamOf(device)) {
  std::string why;
  KVG_CHECK(UseDevice(device, &info_, &why), why);
}

Context::~Context() {
  Wait(stream_);
  for (const Chunk& chunk : chunks_) Free(chunk.data);
}

void* Context::Take(int64_t size_bytes) {
  const int64_t size =
      std::max<int64_t>((size_bytes + kAlignment - 1) / kAlignment, 1) * kAlignment;
  while (current_ < chunks_.size() && used_ + size > chunks_[current_].size_bytes) {
    ++current_;
    used_ = 0;
  }
  if (current_ == chunks_.size()) {
    const int64_t chunk_bytes = std::max({size, held_bytes_, kLeastChunk});
    void* data = Malloc(chunk_bytes, stream_);
    int64_t got = chunk_bytes;
    if (data == nullptr) {
      got = size;
      data = Malloc(size, stream_);
    }
    if (data == nullptr) throw OutOfDeviceMemory(size, stream_);
    chunks_.push_back({static_cast<char*>(data), got});
    held_bytes_ += got;
    peak_bytes_ = std::max(peak_bytes_, held_bytes_);
  }
  void* taken = chunks_[current_].data + used_;
  used_ += size;
  return taken;
}

ScratchScope::~ScratchScope() {
  context_.current_ = chunk_;
  context_.used_ = used_;
  // Many chunks mean that one larger one is wanted: the next taker makes it.
  if (chunk_ != 0 || used_ != 0 || context_.chunks_.size() < 4) return;
  if (Recorder::Open() != nullptr) return;  // not now
  Wait(context_.stream());
  for (const Context::Chunk& chunk : context_.chunks_) Free(chunk.data);
  context_.chunks_.clear();
  context_.held_bytes_ = 0;
}

}  // namespace kvgauge::cuda
