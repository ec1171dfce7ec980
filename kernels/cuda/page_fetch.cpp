// SPDX-License-Identifier: Apache-2.0
#include "cuda/page_fetch.h"

#include <algorithm>
#include <cstring>

#include "cuda/device/mapped.h"

namespace kvgauge::cuda {
namespace {

// Half a ring, unless one head has more: enough for a bus to be busy.
constexpr int64_t kHalfBytes = int64_t{32} << 20;
constexpr int64_t kPlace = 64, kLine = 16;

int64_t RoundedTo(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

PageFetch::~PageFetch() {
  if (ordered_ == nullptr) return;
  Wait(copies_to_);
  for (const Event event :
       {ordered_, halves_[0].landed, halves_[0].done, halves_[1].landed, halves_[1].done}) {
    DestroyEvent(event);
  }
}

int64_t PageFetch::RingBytes(int64_t largest_bytes, int64_t total_bytes) {
  const int64_t half = std::min(RoundedTo((total_bytes + 1) / 2, kPlace), kHalfBytes);
  return 2 * std::max(largest_bytes, half);
}

void PageFetch::GrowRing(int64_t largest_bytes, int64_t total_bytes) {
  const int64_t wanted = RingBytes(largest_bytes, total_bytes) / 2;
  if (wanted <= half_bytes_) return;
  Wait(copies_to_);
  half_bytes_ = 0;
  try {
    ring_ = memory_.Of<std::byte>(2 * wanted);
    half_bytes_ = wanted;
  } catch (const OutOfDeviceMemory&) {
    ring_ = memory_.Of<std::byte>(2 * largest_bytes);
    half_bytes_ = largest_bytes;
  }
  orders_ = true;
}

std::vector<int64_t> PageFetch::Plan(std::span<const HostPage> pages,
                                     std::span<const HostPages> heads, int group) {
  if (ordered_ == nullptr) {
    ordered_ = CreateEvent(stream_);
    for (Half& half : halves_) half = {CreateEvent(stream_), CreateEvent(stream_)};
    orders_ = true;
  }
  const auto bytes_of = [&](const HostPages& head) {
    int64_t bytes = 0;
    for (const HostPage& page : pages.subspan(head.first, head.count)) {
      bytes += RoundedTo(page.size_bytes, kPlace);
    }
    return bytes;
  };
  std::vector<int64_t> head_bytes;
  int64_t largest = 0, total = 0;
  for (const HostPages& head : heads) {
    head_bytes.push_back(bytes_of(head));
    largest = std::max(largest, head_bytes.back());
    total += head_bytes.back();
  }
  GrowRing(largest, total);

  copies_.clear();
  turn_ += std::ssize(chunks_);
  chunks_.clear();
  // Pages of one segment have one list of what is read of them.
  int64_t reads = 0;
  const uint64_t* const* read = nullptr;  // of the page before
  for (const HostPages& head : heads) {
    for (const HostPage& page : pages.subspan(head.first, head.count)) {
      if (page.read != nullptr && page.read != read) ++reads;
      read = page.read;
    }
  }
  const int64_t listed = std::ssize(pages) * static_cast<int64_t>(sizeof(PageCopy)) + Tables::kGap +
                         reads * (group * static_cast<int64_t>(sizeof(void*)) + Tables::kGap);
  if (listed > most_listed_bytes_) {
    Wait(copies_to_);  // what it had is given back
    most_listed_bytes_ = listed;
    orders_ = true;
  }
  lists_.Begin(listed);
  std::vector<int64_t> chunk_of;
  read = nullptr;
  const uint64_t* const* listed_read = nullptr;  // the same in the list
  for (size_t h = 0; h < heads.size(); ++h) {
    if (h == 0 || heads[h].kind != heads[h - 1].kind ||
        chunks_.back().bytes + head_bytes[h] > half_bytes_) {
      chunks_.push_back({std::ssize(copies_), 0, 0});
    }
    const int64_t at = std::ssize(chunks_) - 1;
    Chunk& chunk = chunks_.back();
    chunk_of.push_back(at);
    for (const HostPage& page : pages.subspan(heads[h].first, heads[h].count)) {
      if (page.read != nullptr && page.read != read) {
        listed_read =
            lists_.Put(std::span<const uint64_t* const>(page.read, static_cast<size_t>(group)));
        orders_ = true;  // the device may be choosing yet
      }
      read = page.read;
      void* const to = RingOf(at) + chunk.bytes;
      std::memcpy(page.entry, &to, sizeof to);
      copies_.push_back({page.page, to, RoundedTo(page.size_bytes, kLine),
                         read == nullptr ? nullptr : listed_read, page.index, group});
      chunk.bytes += RoundedTo(page.size_bytes, kPlace);
      ++chunk.count;
    }
  }
  listed_ = lists_.Put(std::span<const PageCopy>(copies_));
  return chunk_of;
}

void PageFetch::Send() {
  const int64_t writes = WritesToMapped();
  if (orders_ || writes != seen_writes_) {
    Record(ordered_, stream_);
    WaitIn(copies_to_, ordered_);
    seen_writes_ = writes;
    orders_ = false;
  }
  lists_.Send(copies_to_);
}

void PageFetch::Start(int64_t index) {
  const Chunk& chunk = chunks_[static_cast<size_t>(index)];
  const Half& half = HalfOf(index);
  // An event that was never recorded is waited for by nobody.
  WaitIn(copies_to_, half.done);
  Discard(RingOf(index), chunk.bytes);
  CopyWholePages(listed_ + chunk.first, chunk.count, kFewBlocks, copies_to_);
  Record(half.landed, copies_to_);
  WaitIn(stream_, half.landed);
}

void PageFetch::Done(int64_t chunk) { Record(HalfOf(chunk).done, stream_); }

}  // namespace kvgauge::cuda
