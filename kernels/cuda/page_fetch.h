// SPDX-License-Identifier: Apache-2.0
// Pages on the host that a call of attention reads, brought to the device first.
//
// They come through the two halves of a ring: while the heads whose pages one half has are attended
// to, the pages of the next heads are fetched into the other one, on the stream of copies. That
// stream runs ahead of the other as far as the ring has room: into the products before the next
// layer's attention, unless the device itself chooses what is read.
//
// One call: Plan, Send, and for each chunk in order Start, the work that reads it, Done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/call_tables.h"
#include "cuda/fetch_kernels.h"

namespace kvgauge::cuda {

// A page that a table of this call names.
struct HostPage {
  std::byte* entry;  // where the table has its address
  const void* page;
  int64_t size_bytes;
  const uint64_t* const* read;  // of KvSegment
  int segment, index;           // it is page `index` of that segment
};

// Pages that are needed together: those of one head.
struct HostPages {
  size_t first, count;  // of the list
  int kind;             // those of different kinds are never needed together
};

class PageFetch {
 public:
  explicit PageFetch(Stream stream)
      : stream_(stream), copies_to_(CopyStream(stream)), memory_(stream), lists_(copies_to_) {}
  PageFetch(const PageFetch&) = delete;
  PageFetch& operator=(const PageFetch&) = delete;
  ~PageFetch();

  // The size of a ring for a head, and for all heads, with so many bytes.
  static int64_t RingBytes(int64_t largest_bytes, int64_t total_bytes);

  // Gives each page a place in the ring, which its table then names; returns the chunk of each of
  // `heads`, ascending. `group`: query heads of a KV head. Throws OutOfDeviceMemory.
  std::vector<int64_t> Plan(std::span<const HostPage> pages, std::span<const HostPages> heads,
                            int group);
  // Behind everything that the pages, and what is read of them, depend on.
  void Send();
  // What goes to the stream after this finds the chunk's pages.
  void Start(int64_t chunk);
  // What read them went to the stream.
  void Done(int64_t chunk);

 private:
  struct Half {
    Event landed = nullptr, done = nullptr;
  };
  struct Chunk {
    int64_t first = 0, count = 0;  // of the copies
    int64_t bytes = 0;
  };

  void GrowRing(int64_t largest_bytes, int64_t total_bytes);
  Half& HalfOf(int64_t chunk) { return halves_[(turn_ + chunk) % 2]; }
  std::byte* RingOf(int64_t chunk) const { return ring_ + (turn_ + chunk) % 2 * half_bytes_; }

  const Stream stream_, copies_to_;
  Scratch memory_;
  std::byte* ring_ = nullptr;
  int64_t half_bytes_ = 0;
  Half halves_[2];
  int64_t turn_ = 0;  // chunks of the calls before

  Event ordered_ = nullptr;
  bool orders_ = false;      // the copies of this call are behind what went to the stream
  int64_t seen_writes_ = 0;  // WritesToMapped that copies are behind
  Tables lists_;
  int64_t most_listed_bytes_ = 0;
  // This call's.
  std::vector<PageCopy> copies_;
  std::vector<Chunk> chunks_;
  const PageCopy* listed_ = nullptr;
};

}  // namespace kvgauge::cuda
