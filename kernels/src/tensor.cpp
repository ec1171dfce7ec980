// SPDX-License-Identifier: Apache-2.0
#include "kernels/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "core/strings.h"
#include "kernels/buffer_bytes.h"

namespace kvgauge {
namespace {

constexpr int64_t kAlignment = 64;
// From here on fresh zero pages are cheaper than clearing, and huge pages spare the TLB.
constexpr int64_t kMapFrom = int64_t{4} << 20;

void FreeHeap(void* data, int64_t) { std::free(data); }
void FreeMapped(void* data, int64_t size_bytes) { munmap(data, static_cast<size_t>(size_bytes)); }

}  // namespace

Tensor::Tensor(void* memory, DType type, std::initializer_list<int64_t> dims, Device where)
    : data(memory), dtype(type), device(where), rank(static_cast<int>(dims.size())) {
  KVG_CHECK(rank <= kMaxRank, "too many dimensions");
  std::copy(dims.begin(), dims.end(), shape.begin());
  int64_t step = 1;
  for (int i = rank - 1; i >= 0; --i) {
    KVG_CHECK(shape[i] >= 0, "negative dimension");
    stride[i] = step;
    step *= shape[i];
  }
}

int64_t Tensor::Numel() const {
  int64_t count = rank == 0 ? 0 : 1;
  for (int i = 0; i < rank; ++i) count *= shape[i];
  return count;
}

bool Tensor::IsContiguous() const {
  int64_t step = 1;
  for (int i = rank - 1; i >= 0; --i) {
    if (shape[i] != 1 && stride[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

Tensor Tensor::Slice(int64_t begin, int64_t end) const {
  KVG_CHECK(rank > 0 && 0 <= begin && begin <= end && end <= shape[0], "slice out of range");
  Tensor part = *this;
  part.data = static_cast<char*>(data) + begin * stride[0] * SizeOf(dtype);
  part.shape[0] = end - begin;
  return part;
}

Tensor Tensor::operator[](int64_t i) const {
  Tensor entry = Slice(i, i + 1);
  entry.rank = rank - 1;
  for (int d = 0; d < entry.rank; ++d) {
    entry.shape[d] = shape[d + 1];
    entry.stride[d] = stride[d + 1];
  }
  entry.shape[entry.rank] = entry.stride[entry.rank] = 0;
  return entry;
}

Tensor Tensor::Reshape(std::initializer_list<int64_t> dims) const {
  KVG_CHECK(IsContiguous(), "reshape needs a contiguous tensor");
  Tensor view(data, dtype, dims, device);
  KVG_CHECK(view.Numel() == Numel(), "reshape changes the number of elements");
  return view;
}

std::string Tensor::DebugString() const {
  std::string out = StrCat(NameOf(dtype), "[");
  for (int i = 0; i < rank; ++i) out += StrCat(i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

Tensor View(std::span<const float> values, std::initializer_list<int64_t> dims) {
  Tensor view(const_cast<float*>(values.data()), DType::kF32, dims);
  KVG_CHECK(view.Numel() == static_cast<int64_t>(values.size()), "view does not cover the array");
  return view;
}

Tensor View(std::span<const int32_t> values, std::initializer_list<int64_t> dims) {
  Tensor view(const_cast<int32_t*>(values.data()), DType::kI32, dims);
  KVG_CHECK(view.Numel() == static_cast<int64_t>(values.size()), "view does not cover the array");
  return view;
}

Tensor Buffer::As(DType dtype, std::initializer_list<int64_t> dims) const {
  Tensor view(data_, dtype, dims, device_);
  KVG_CHECK(view.SizeBytes() <= size_bytes_, "buffer is smaller than the view");
  return view;
}

void Buffer::Swap(Buffer& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(device_, other.device_);
  std::swap(free_, other.free_);
}

namespace {

class OutOfHostMemory final : public std::bad_alloc {
 public:
  explicit OutOfHostMemory(int64_t size_bytes)
      : message_(StrCat("out of memory: cannot allocate ", HumanBytes(size_bytes))) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

}  // namespace

int64_t HostBufferBytes(int64_t size_bytes) {
  return (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Buffer HostBuffer(int64_t size_bytes) {
  KVG_CHECK(size_bytes >= 0, "negative buffer size");
  if (size_bytes == 0) return {};
  const int64_t rounded = HostBufferBytes(size_bytes);
  if (rounded >= kMapFrom) {
    void* data = mmap(nullptr, static_cast<size_t>(rounded), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw OutOfHostMemory(size_bytes);
    madvise(data, static_cast<size_t>(rounded), MADV_HUGEPAGE);
    return {data, rounded, Device::kHost, FreeMapped};
  }
  void* data = std::aligned_alloc(kAlignment, static_cast<size_t>(rounded));
  if (data == nullptr) throw OutOfHostMemory(size_bytes);
  std::memset(data, 0, static_cast<size_t>(rounded));
  return {data, rounded, Device::kHost, FreeHeap};
}

}  // namespace kvgauge
