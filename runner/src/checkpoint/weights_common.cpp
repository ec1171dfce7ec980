// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/weights_common.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "core/check.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr uint64_t kWholeBytes = uint64_t{1} << 20;
constexpr uint64_t kEndBytes = uint64_t{16} << 10;  // head and tail
constexpr uint64_t kSamples = 32;
constexpr uint64_t kSampleBytes = uint64_t{4} << 10;
// What is asked of storage at once, and how far before it is used.
constexpr size_t kPieceBytes = size_t{4} << 20;
constexpr size_t kPiecesAhead = 16;

#ifdef MADV_POPULATE_READ
// Takes the pages that touch `part` into this process's memory, many at a time and by all threads:
// a fault brings a few of them. Systems that do not know how leave it to the faults.
void MapPages(std::span<const uint8_t> part) {
  constexpr size_t kMapBytes = size_t{1} << 20;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(part.data()) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(part.data()) + part.size();
  const auto pieces = static_cast<int64_t>((end - first + kMapBytes - 1) / kMapBytes);
#pragma omp parallel for schedule(static) if (pieces > 1)
  for (int64_t i = 0; i < pieces; ++i) {
    const uintptr_t begin = first + static_cast<uintptr_t>(i) * kMapBytes;
    madvise(reinterpret_cast<void*>(begin), std::min<size_t>(kMapBytes, end - begin),
            MADV_POPULATE_READ);
  }
}
#else
void MapPages(std::span<const uint8_t>) {}
#endif

}  // namespace

void FingerprintBuilder::AddNumber(uint64_t number) {
  uint8_t bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(number >> (8 * i));
  hash_.Update(bytes, sizeof(bytes));
}

void FingerprintBuilder::AddText(std::string_view text) {
  AddNumber(text.size());
  hash_.Update(text.data(), text.size());
}

void FingerprintBuilder::AddTensor(std::string_view name, std::string_view dtype,
                                   std::span<const int64_t> shape) {
  AddText(name);
  AddText(dtype);
  AddNumber(shape.size());
  for (const int64_t size : shape) AddNumber(static_cast<uint64_t>(size));
}

void FingerprintBuilder::AddContent(std::span<const uint8_t> content) {
  AddNumber(content.size());
  if (content.size() < kWholeBytes) {
    hash_.Update(content.data(), content.size());
    return;
  }
  hash_.Update(content.data(), kEndBytes);
  const uint64_t last = content.size() - kSampleBytes;
  for (uint64_t i = 1; i <= kSamples; ++i) {
    // Division first: the product would overflow for no tensor that exists, but costs nothing.
    const uint64_t at = last / (kSamples + 1) * i;
    hash_.Update(content.data() + at, kSampleBytes);
  }
  hash_.Update(content.data() + content.size() - kEndBytes, kEndBytes);
}

Error NoSuchTensor(std::string_view origin, const std::string& name,
                   const std::vector<std::string>& known) {
  return BadInput(StrCat(origin, ": no tensor ", Quoted(name, 120), DidYouMean(name, known)));
}

Tensor ContiguousView(const void* data, DType dtype, std::span<const int64_t> shape) {
  KVG_CHECK(shape.size() <= kMaxRank, "tensor is deeper than a view can be");
  Tensor view;
  // A view does not carry const; nothing writes to weights.
  view.data = const_cast<void*>(data);
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  int64_t step = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.shape[i] = shape[static_cast<size_t>(i)];
    view.stride[i] = step;
    step *= view.shape[i];
  }
  if (view.rank == 0) {
    view.rank = 1;
    view.shape[0] = view.stride[0] = 1;
  }
  return view;
}

void ReadAhead::Reach(const MappedFile& file, std::span<const uint8_t> part) {
  if (part.empty()) return;
  const std::span<const uint8_t> all = file.bytes();
  const auto first = static_cast<size_t>(part.data() - all.data()) / kPieceBytes;
  const size_t last = first + part.size() / kPieceBytes + 1 + kPiecesAhead;
  {
    const std::lock_guard lock(mutex_);
    std::vector<bool>& asked = asked_[&file];
    asked.resize(all.size() / kPieceBytes + 1);
    for (size_t i = first; i < std::min(last, asked.size()); ++i) {
      if (asked[i]) continue;
      asked[i] = true;
      const size_t begin = i * kPieceBytes, size = std::min(kPieceBytes, all.size() - begin);
      madvise(const_cast<uint8_t*>(all.data()) + begin, size, MADV_WILLNEED);
    }
  }
  MapPages(part);
}

void ReleasePages(std::span<const uint8_t> part) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t first = (begin + page - 1) / page * page,
                  end = (begin + part.size()) / page * page;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace kvgauge
