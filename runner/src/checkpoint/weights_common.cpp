// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/weights_common.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "core/check.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr uint64_t kWholeBytes = uint64_t{1} << 20;
constexpr uint64_t kEndBytes = uint64_t{16} << 10;  // head and tail
constexpr uint64_t kSamples = 32;
constexpr uint64_t kSampleBytes = uint64_t{4} << 10;

// What is asked of storage at once, and how far before it is used.
constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int64_t kPiecesAhead = 16;
// Bytes go through so much memory, which stays in a near cache. A look at the cache is as fine.
constexpr int64_t kStepBytes = int64_t{256} << 10;

// Whether the bytes are in the system's cache, as far as samples say. False where it does not tell.
bool IsCached(int descriptor, int64_t begin, int64_t end) {
#ifdef RWF_NOWAIT
  char byte;
  const iovec to = {.iov_base = &byte, .iov_len = 1};
  for (int64_t at = begin; at < end; at += kStepBytes) {
    if (preadv2(descriptor, &to, 1, at, RWF_NOWAIT) != 1) return false;
  }
  return preadv2(descriptor, &to, 1, end - 1, RWF_NOWAIT) == 1;
#else
  return false;
#endif
}

// Reads the bytes and leaves them to the cache. Through read, not through a hint: the system then
// takes large pages for a cached file, which are mapped with less work. What fails here fails at
// the fault.
void ReadInto(int descriptor, int64_t begin, int64_t end, char* step) {
  std::array<iovec, kPieceBytes / kStepBytes> to;
  for (int64_t at = begin; at < end;) {
    size_t count = 0;
    for (int64_t from = at; from < end && count < to.size(); from += kStepBytes) {
      const int64_t size = std::min(kStepBytes, end - from);
      to[count++] = {.iov_base = step, .iov_len = static_cast<size_t>(size)};
    }
    const ssize_t got = preadv(descriptor, to.data(), static_cast<int>(count), at);
    if (got <= 0) return;
    at += got;
  }
}

// What a fault brings into a process's memory, of what the cache has: the aligned bytes around it.
constexpr uintptr_t kFaultBytes = uintptr_t{64} << 10;

// Takes the pages of `part` into this process's memory, by all threads.
void MapPages(std::span<const uint8_t> part) {
  const auto begin = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t first = begin / kFaultBytes;
  const auto faults = static_cast<int64_t>((begin + part.size() - 1) / kFaultBytes - first + 1);
#pragma omp parallel for schedule(static) if (faults > 16)
  for (int64_t i = 0; i < faults; ++i) {
    const uintptr_t at = std::max(begin, (first + static_cast<uintptr_t>(i)) * kFaultBytes);
    static_cast<void>(*reinterpret_cast<const volatile uint8_t*>(at));
  }
}

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

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (const auto& [map, file] : files_) {
    if (file->descriptor >= 0) close(file->descriptor);
  }
}

ReadAhead::File& ReadAhead::FileOf(const MappedFile& file) {
  std::unique_ptr<File>& known = files_[&file];
  if (known != nullptr) return *known;
  known = std::make_unique<File>();
  known->bytes = static_cast<int64_t>(file.bytes().size());
  known->descriptor = open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
  posix_fadvise(known->descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
  known->pieces.resize(static_cast<size_t>((known->bytes + kPieceBytes - 1) / kPieceBytes));
  return *known;
}

std::vector<ReadAhead::Place> ReadAhead::PiecesOf(const FilePart& part) {
  if (part.bytes.empty()) return {};
  File& file = FileOf(*part.file);
  const int64_t begin = part.bytes.data() - part.file->bytes().data();
  const int64_t last = begin + static_cast<int64_t>(part.bytes.size()) - 1;
  std::vector<Place> places;
  for (int64_t i = begin / kPieceBytes; i <= last / kPieceBytes; ++i) places.push_back({&file, i});
  return places;
}

void ReadAhead::Plan(std::span<const FilePart> parts) {
  const std::lock_guard lock(mutex_);
  for (const FilePart& part : parts) {
    for (const Place& place : PiecesOf(part)) {
      place.file->ordered = true;
      if (At(place).planned) continue;
      At(place).planned = true;
      planned_.push_back(place);
    }
  }
}

void ReadAhead::SetThere(const Place& place) {
  Piece& piece = At(place);
  if (!piece.there && !piece.reached) ++ahead_;
  piece.there = true;
}

void ReadAhead::Reach(const FilePart& part) {
  if (part.bytes.empty()) return;
  Await(part);
  MapPages(part.bytes);
}

void ReadAhead::Await(const FilePart& part) {
  std::unique_lock lock(mutex_);
  const std::vector<Place> places = PiecesOf(part);
  File& file = *places[0].file;
  if (!file.ordered) {
    file.ordered = true;
    for (int64_t i = places[0].index; i < std::ssize(file.pieces); ++i) {
      planned_.push_back({&file, i});
    }
  }
  std::vector<Place> missing;
  for (const Place& place : places) {
    Piece& piece = At(place);
    if (piece.there && !piece.reached) --ahead_;
    piece.reached = true;
    if (!piece.there) missing.push_back(place);
  }
  work_.notify_all();
  there_.notify_all();
  if (missing.empty() || file.descriptor < 0) return;
  lock.unlock();
  // A look costs less than to wait for another thread.
  std::erase_if(missing, [&](const Place& place) {
    const int64_t begin = place.index * kPieceBytes;
    return IsCached(file.descriptor, begin, std::min(begin + kPieceBytes, file.bytes));
  });
  lock.lock();
  for (const Place& place : places) {
    const auto same = [&](const Place& other) { return other.index == place.index; };
    if (std::ranges::none_of(missing, same)) SetThere(place);
  }
  there_.notify_all();
  if (missing.empty()) return;
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error&) {
      return;  // faults read
    }
  }
  urgent_.insert(urgent_.end(), missing.begin(), missing.end());
  work_.notify_all();
  there_.wait(lock, [&] {
    return std::ranges::all_of(missing, [](const Place& place) { return At(place).there; });
  });
}

void ReadAhead::Follow(const FilePart& part) {
  std::unique_lock lock(mutex_);
  const std::vector<Place> places = PiecesOf(part);
  there_.wait(lock, [&] {
    return plan_ended_ || std::ranges::all_of(places, [](const Place& place) {
             const Piece& piece = At(place);
             return !piece.planned || (piece.reached && piece.there);
           });
  });
}

void ReadAhead::EndPlan() {
  {
    const std::lock_guard lock(mutex_);
    plan_ended_ = true;
  }
  there_.notify_all();
}

void ReadAhead::Run() {
  std::vector<char> step(static_cast<size_t>(kStepBytes));
  std::unique_lock lock(mutex_);
  const auto may_go_on = [&] {
    return !plan_ended_ && next_ < planned_.size() && ahead_ < kPiecesAhead;
  };
  for (;;) {
    work_.wait(lock, [&] { return stop_ || !urgent_.empty() || may_go_on(); });
    if (stop_) return;
    Place place;
    if (!urgent_.empty()) {
      place = urgent_.front();
      urgent_.pop_front();
    } else {
      place = planned_[next_++];
    }
    if (At(place).there) continue;
    const File& file = *place.file;
    const int64_t begin = place.index * kPieceBytes;
    const int64_t end = std::min(begin + kPieceBytes, file.bytes);
    lock.unlock();
    if (!IsCached(file.descriptor, begin, end)) {
      ReadInto(file.descriptor, begin, end, step.data());
    }
    lock.lock();
    SetThere(place);
    there_.notify_all();
  }
}

void ReleasePages(const FilePart& part) {
  if (part.bytes.empty()) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::span<const uint8_t> all = part.file->bytes();
  const auto file_begin = reinterpret_cast<uintptr_t>(all.data());
  const uintptr_t file_end = (file_begin + all.size() + page - 1) / page * page;
  const auto begin = reinterpret_cast<uintptr_t>(part.bytes.data());
  const uintptr_t end = (begin + part.bytes.size() + kFaultBytes - 1) / kFaultBytes * kFaultBytes;
  const uintptr_t first = std::max(begin / kFaultBytes * kFaultBytes, file_begin);
  madvise(reinterpret_cast<void*>(first), std::min(end, file_end) - first, MADV_DONTNEED);
}

}  // namespace kvgauge
