// SPDX-License-Identifier: Apache-2.0
// Pages on the host: which addresses are of them, and what a call of attention finds of them.
#include "cuda/page_fetch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "core/rng.h"
#include "cuda/backend_parts.h"
#include "cuda/device/mapped.h"
#include "cuda/emulated/device_memory.h"

namespace kvgauge::cuda {
namespace {

TEST(Mapped, IsKnownByItsAddresses) {
  EXPECT_FALSE(AnyMapped());
  auto* const first = static_cast<char*>(TakeMapped(1000, nullptr));
  auto* const second = static_cast<char*>(TakeMapped(500, nullptr));
  void* const device = Malloc(100, nullptr);
  const int host = 0;
  ASSERT_TRUE(first != nullptr && second != nullptr && device != nullptr);
  EXPECT_TRUE(AnyMapped());
  MappedLookup mapped;
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_TRUE(mapped.Holds(first));
    EXPECT_TRUE(mapped.Holds(first + 999));
    EXPECT_FALSE(mapped.Holds(first + 1000));
    EXPECT_FALSE(mapped.Holds(device));
    EXPECT_FALSE(mapped.Holds(&host));
    EXPECT_FALSE(mapped.Holds(nullptr));
    EXPECT_TRUE(mapped.Holds(second + 499));
    EXPECT_FALSE(mapped.Holds(second + 500));
  }
  EXPECT_EQ(MappedBytesTaken(), 1500);
  GiveMapped(first);
  EXPECT_FALSE(MappedLookup().Holds(first));
  EXPECT_TRUE(MappedLookup().Holds(second));
  GiveMapped(second);
  Free(device);
  EXPECT_FALSE(AnyMapped());
  EXPECT_EQ(MappedBytesTaken(), 0);
}

TEST(Mapped, IsKeptForLaterTakersOfAsMuch) {
  DropSpareMapped();
  EXPECT_EQ(emulated::MappedBytes(), 0);
  void* const first = TakeMapped(1000, nullptr);
  GiveMapped(first);
  EXPECT_EQ(emulated::MappedBytes(), 1000);
  void* const small = TakeMapped(500, nullptr);
  EXPECT_NE(small, first);
  void* const again = TakeMapped(990, nullptr);
  EXPECT_EQ(again, first);
  EXPECT_FALSE(MappedLookup().Holds(static_cast<char*>(first) + 990));
  EXPECT_EQ(MappedBytesTaken(), 1490);
  GiveMapped(again);
  EXPECT_EQ(TakeMapped(1000, nullptr), first);  // all of it is back
  GiveMapped(first);
  // The system has no more: what is kept goes first.
  emulated::SetMappedCapacity(1600);
  void* const other = TakeMapped(800, nullptr);
  EXPECT_NE(other, nullptr);
  EXPECT_EQ(emulated::MappedBytes(), 1300);
  EXPECT_EQ(TakeMapped(400, nullptr), nullptr);
  emulated::SetMappedCapacity(int64_t{4} << 30);
  GiveMapped(small);
  GiveMapped(other);
  DropSpareMapped();
  EXPECT_EQ(emulated::MappedBytes(), 0);
}

class PageFetchTest : public ::testing::Test {
 protected:
  static constexpr int64_t kPageBytes = 208;  // no multiple of a place in the ring
  static constexpr int kPages = 6;
  static constexpr uint32_t kNan = 0xffffffff;

  void SetUp() override {
    memory_ = static_cast<std::byte*>(TakeMapped(kPages * 256, nullptr));
    for (int p = 0; p < kPages; ++p) Write(p, 100 * p);
    tables_.resize(kPages);
  }
  void TearDown() override { GiveMapped(memory_); }

  std::byte* PageOf(int p) const { return memory_ + int64_t{256} * p; }
  void Write(int p, int32_t first) const {
    std::vector<int32_t> numbers(kPageBytes / 4);
    std::iota(numbers.begin(), numbers.end(), first);
    CopyToDevice(PageOf(p), numbers.data(), kPageBytes, nullptr);
    NoteWriteToMapped();
  }
  // All pages; `read` is that of KvSegment.
  std::vector<HostPage> Pages(const uint64_t* const* read = nullptr) {
    std::vector<HostPage> pages;
    for (int p = 0; p < kPages; ++p) {
      pages.push_back({reinterpret_cast<std::byte*>(&tables_[static_cast<size_t>(p)]), PageOf(p),
                       kPageBytes, read, 0, p});
    }
    return pages;
  }
  // Where the table says that the page is.
  uint32_t FirstNumber(int p, int64_t at = 0) const {
    uint32_t number = 0;
    CopyToHost(&number, static_cast<std::byte*>(tables_[static_cast<size_t>(p)]) + 4 * at, 4,
               nullptr);
    return number;
  }

  std::byte* memory_ = nullptr;
  std::vector<void*> tables_;
  PageFetch fetch_ = PageFetch(nullptr);
};

TEST_F(PageFetchTest, ChunksComeInTurnAndNotBefore) {
  const std::vector<HostPages> heads = {{0, 2, 0}, {2, 2, 0}, {4, 2, 3}};
  for (int call = 0; call < 5; ++call) {
    const std::vector<int64_t> chunks = fetch_.Plan(Pages(), heads, 1);
    // Half of the ring has three pages: no two heads.
    EXPECT_EQ(chunks, (std::vector<int64_t>{0, 1, 2}));
    fetch_.Send();
    for (const int64_t chunk : chunks) {
      const int first = static_cast<int>(2 * chunk);
      fetch_.Start(chunk);
      for (const int p : {first, first + 1}) {
        EXPECT_EQ(FirstNumber(p), 100u * static_cast<uint32_t>(p) + (p == 5 ? 7u * call : 0u));
        EXPECT_EQ(FirstNumber(p, kPageBytes / 4 - 1), FirstNumber(p) + kPageBytes / 4 - 1);
      }
      fetch_.Done(chunk);
    }
    Write(5, 500 + 7 * (call + 1));
  }
}

// What a half had before is gone when the next chunk is begun, and what it gets is there only
// behind the wait.
TEST_F(PageFetchTest, WhatNobodyReadsIsNotFetched) {
  const uint64_t words[2][kPages] = {{0, 1, 0, 0, 0, 0}, {0, 0, 0, uint64_t{1} << 63, 0, 0}};
  auto* const device = static_cast<uint64_t*>(Malloc(sizeof words, nullptr));
  CopyToDevice(device, words, sizeof words, nullptr);
  const uint64_t* const read[] = {device, device + kPages};
  const std::vector<HostPages> heads = {{0, kPages, 0}};
  for (int call = 0; call < 3; ++call) {
    EXPECT_EQ(fetch_.Plan(Pages(read), heads, 2), std::vector<int64_t>{0});
    fetch_.Send();
    fetch_.Start(0);
    for (int p = 0; p < kPages; ++p) {
      EXPECT_EQ(FirstNumber(p), p == 1 || p == 3 ? 100u * static_cast<uint32_t>(p) : kNan) << p;
    }
    fetch_.Done(0);
  }
  Free(device);
}

// Heads of several sequences, of which only some choose.
TEST_F(PageFetchTest, SomeHeadsAreReadWhole) {
  const uint64_t words[2][kPages] = {{0, 0, 0, 0, 1, 0}, {0, 0, 0, 0, 0, 0}};
  auto* const device = static_cast<uint64_t*>(Malloc(sizeof words, nullptr));
  CopyToDevice(device, words, sizeof words, nullptr);
  const uint64_t* const some[] = {device};
  const uint64_t* const none[] = {device + kPages};
  std::vector<HostPage> pages = Pages();
  for (int p = 2; p < kPages; ++p) pages[static_cast<size_t>(p)].read = p < 4 ? none : some;
  const std::vector<HostPages> heads = {{0, 2, 0}, {2, 2, 0}, {4, 2, 0}};
  for (const int64_t chunk : fetch_.Plan(pages, heads, 1)) {
    if (chunk == 0) fetch_.Send();
    fetch_.Start(chunk);
    for (int p = static_cast<int>(2 * chunk); p < 2 * chunk + 2; ++p) {
      EXPECT_EQ(FirstNumber(p), p < 2 || p == 4 ? 100u * static_cast<uint32_t>(p) : kNan) << p;
    }
    fetch_.Done(chunk);
  }
  Free(device);
}

TEST_F(PageFetchTest, ARingThatFindsNoRoomMayBeAskedForAgain) {
  const std::vector<HostPages> heads = {{0, 3, 0}, {3, 3, 0}};
  emulated::RefuseAllocations(0, 4);
  EXPECT_THROW(fetch_.Plan(Pages(), heads, 1), OutOfDeviceMemory);
  emulated::RefuseAllocations(0, 0);
  const std::vector<int64_t> chunks = fetch_.Plan(Pages(), heads, 1);
  fetch_.Send();
  fetch_.Start(chunks[0]);
  EXPECT_EQ(FirstNumber(2), 200u);
  fetch_.Done(chunks[0]);
}

// One head of 1100 entries, the first 1024 of which lie on the host or all on the device.
std::vector<float> Attended(Ops& ops, int64_t window, bool on_host) {
  constexpr int64_t kEntries = 1100, kDim = 32;
  const KvFormat format = {DType::kF16, kDim, kDim};
  std::vector<Buffer> memory;
  const auto take = [&](int64_t size_bytes, bool there) {
    memory.push_back(there ? ops.memory->AllocateOnHost(size_bytes)
                           : ops.memory->Allocate(size_bytes));
    return memory.back().data();
  };
  std::vector<void*> keys, values;
  for (int64_t first = 0; first < kEntries; first += kKvPageEntries) {
    const bool there = on_host && first < 1024;
    keys.push_back(take(ops.attention->KeyPageBytes(format), there));
    values.push_back(take(ops.attention->ValuePageBytes(format), there));
  }
  const auto send = [&](int64_t rows, uint64_t seed) {
    Rng rng(seed, 0);
    std::vector<float> numbers(static_cast<size_t>(rows * kDim));
    for (float& number : numbers) number = static_cast<float>(2 * rng.NextDouble() - 1);
    const Tensor out(take(4 * rows * kDim, false), DType::kF32, {rows, 1, kDim}, ops.device);
    ops.memory->Copy(View(numbers, {rows, 1, kDim}), out);
    return out;
  };
  const KvTarget target = {keys.data(), values.data(), 0};
  ops.attention->WriteKv(format, send(kEntries, 1), send(kEntries, 2), {&target, 1});
  KvSegment segment;
  segment.key_pages = keys.data();
  segment.value_pages = values.data();
  segment.length = kEntries;
  const KvHead head = {&segment, 1};
  const AttentionItem item = {.rows = 1, .heads = {&head, 1}};
  const AttentionShape shape = {
      .format = format, .query_heads = 1, .kv_heads = 1, .scale = 1, .window = window};
  const Tensor out(take(4 * kDim, false), DType::kF32, {1, 1, kDim}, ops.device);
  ops.attention->Attend(shape, {&item, 1}, send(1, 3), out);
  std::vector<float> got(kDim);
  ops.memory->Copy(out.Reshape({kDim}), View(got, {kDim}));
  return got;
}

TEST(FetchTest, WhatLiesBehindAWindowIsNotFetched) {
  std::string why;
  const std::unique_ptr<Ops> ops = MakeDeviceOps(0, &why);
  ASSERT_NE(ops, nullptr) << why;
  for (const int64_t window : {0, 64, 600}) {
    const auto before = emulated::TrafficSoFar();
    const std::vector<float> here = Attended(*ops, window, false);
    EXPECT_EQ((emulated::TrafficSoFar() - before).overlapped, 0);
    EXPECT_EQ(Attended(*ops, window, true), here) << window;
    EXPECT_EQ((emulated::TrafficSoFar() - before).overlapped > 0, window != 64);
  }
}

// The emulator keeps the work of the stream until something waits for it.
TEST(CopyStreamTest, WorksWhenItIsWaitedFor) {
  auto* const device = static_cast<int32_t*>(Malloc(4, nullptr));
  const auto now = [&] {
    int32_t value = 0;
    CopyToHost(&value, device, 4, nullptr);
    return value;
  };
  Event event = CreateEvent(nullptr);
  Fill(device, 0, 4, nullptr);
  Fill(device, 1, 4, CopyStream(nullptr));
  Record(event, CopyStream(nullptr));
  Fill(device, 2, 4, CopyStream(nullptr));
  EXPECT_EQ(now(), 0);
  WaitIn(CopyStream(nullptr), event);
  EXPECT_EQ(now(), 0);
  WaitIn(nullptr, event);
  EXPECT_EQ(now(), 0x01010101);
  WaitIn(nullptr, event);
  EXPECT_EQ(now(), 0x01010101);
  Wait(CopyStream(nullptr));
  EXPECT_EQ(now(), 0x02020202);
  DestroyEvent(event);
  Free(device);
}

}  // namespace
}  // namespace kvgauge::cuda
