// SPDX-License-Identifier: Apache-2.0
// The pool's counts are facts: against a plain model of blocks, over random use, in every tier.
#include "runner/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "core/rng.h"
#include "src/cache/blocks.h"

namespace kvgauge {
namespace {

class BlockPoolTest : public ::testing::TestWithParam<Tier> {
 protected:
  void SetUp() override { ops_ = std::move(*MakeOps("cpu", MakeThreadSettings(1))); }
  std::unique_ptr<Ops> ops_;
};

bool AllAre(const void* block, int64_t size_bytes, unsigned char value) {
  const auto* bytes = static_cast<const unsigned char*>(block);
  for (int64_t i = 0; i < size_bytes; ++i) {
    if (bytes[i] != value) return false;
  }
  return true;
}

TEST_P(BlockPoolTest, RandomUseAgainstAModel) {
  BlockPool pool(GetParam(), *ops_, 0, ::testing::TempDir());
  struct Block {
    int64_t size_bytes = 0;
    int references = 0;
    unsigned char mark = 0;
  };
  std::map<void*, Block> blocks;
  Rng rng(11, 0);
  const std::vector<int64_t> sizes = {1, 64, 100, 4096, 8704, 16384, 70000};
  int64_t used = 0, peak = 0;
  for (int step = 0; step < 2000; ++step) {
    const uint64_t action = rng.NextBelow(10);
    const bool filling = step < 1200;
    if (blocks.empty() || action < (filling ? 5u : 2u)) {
      const int64_t size = sizes[rng.NextBelow(sizes.size())];
      void* block = pool.Allocate(size);
      ASSERT_NE(block, nullptr);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
      const int64_t held = pool.BlockBytes(block);
      ASSERT_GE(held, size);
      ASSERT_EQ(held, BlockPool::ClassBytes(size));
      ASSERT_TRUE(AllAre(block, held, 0)) << "step " << step;
      const auto mark = static_cast<unsigned char>(1 + rng.NextBelow(255));
      std::memset(block, mark, static_cast<size_t>(held));
      ASSERT_TRUE(blocks.emplace(block, Block{held, 1, mark}).second) << "handed out twice";
      used += held;
    } else {
      auto it = std::next(blocks.begin(), static_cast<int64_t>(rng.NextBelow(blocks.size())));
      if (action < 7 && it->second.references < 4) {
        pool.Retain(it->first);
        ++it->second.references;
      } else {
        ASSERT_TRUE(AllAre(it->first, it->second.size_bytes, it->second.mark)) << step;
        ASSERT_EQ(pool.Shared(it->first), it->second.references > 1);
        pool.Release(it->first);
        if (--it->second.references == 0) {
          used -= it->second.size_bytes;
          blocks.erase(it);
        }
      }
    }
    peak = std::max(peak, pool.resident_bytes());
    ASSERT_EQ(pool.used_bytes(), used);
    ASSERT_GE(pool.resident_bytes(), used);
  }
  EXPECT_EQ(pool.peak_bytes(), peak);
  // Lists at once; null is nothing.
  std::vector<void*> all = {nullptr};
  for (const auto& [block, state] : blocks) {
    all.push_back(block);
    for (int i = 1; i < state.references; ++i) pool.Release(block);
  }
  EXPECT_FALSE(pool.AnyShared(all));
  pool.Retain(all.back());
  EXPECT_TRUE(pool.AnyShared(all));
  pool.Release(all.back());
  pool.Retain(all);
  pool.Release(all);
  EXPECT_FALSE(pool.AnyShared(all));
  EXPECT_EQ(pool.used_bytes(), used);
  pool.Release(all);
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_EQ(pool.resident_bytes(), 0);
}

// A list remembers what is its alone, and a copy made since is not overwritten for that.
TEST_P(BlockPoolTest, ListsKnowWhatIsTheirsAlone) {
  BlockPool pool(GetParam(), *ops_, 0, ::testing::TempDir());
  BlockList list(pool);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(list.Push(100).ok());
  void* const third = list[2];
  EXPECT_TRUE(list.OwnsFrom(0));
  EXPECT_TRUE(list.Owns(1));
  ASSERT_TRUE(list.Own(2).ok());
  EXPECT_EQ(list[2], third);
  {
    BlockList copy = list;
    EXPECT_FALSE(list.OwnsFrom(0));
    EXPECT_FALSE(copy.Owns(1));
    ASSERT_TRUE(copy.Own(2).ok());
    EXPECT_NE(copy[2], third);
    EXPECT_TRUE(copy.Owns(2));
    EXPECT_TRUE(list.Owns(2));
    EXPECT_FALSE(copy.OwnsFrom(1));
    copy.DropFront(2);
    EXPECT_TRUE(copy.OwnsFrom(0));
    copy.PushShared(list[0]);
    EXPECT_TRUE(copy.Owns(0));
    EXPECT_FALSE(copy.Owns(1));
    EXPECT_FALSE(list.OwnsFrom(0));
  }
  EXPECT_TRUE(list.OwnsFrom(0));
  EXPECT_EQ(list[2], third);
  const BlockList moved = std::move(list);
  EXPECT_TRUE(moved.Owns(0));
  EXPECT_EQ(moved.allocated_bytes(), 3 * pool.BlockBytes(moved[0]));
}

INSTANTIATE_TEST_SUITE_P(Tiers, BlockPoolTest,
                         ::testing::Values(Tier::kDevice, Tier::kHost, Tier::kDisk),
                         [](const auto& tier) { return std::string(NameOf(tier.param)); });

TEST_F(BlockPoolTest, LimitIsKeptAndNamed) {
  BlockPool pool(Tier::kHost, *ops_, 100 * 1024);
  std::vector<void*> blocks;
  while (void* block = pool.Allocate(16 * 1024)) blocks.push_back(block);
  EXPECT_EQ(blocks.size(), 6u);
  EXPECT_LE(pool.resident_bytes(), 100 * 1024);
  EXPECT_EQ(pool.Refusal(16 * 1024).code, ErrorCode::kResource);
  EXPECT_THAT(pool.Refusal(16 * 1024).message,
              ::testing::HasSubstr("host memory for the cache: 16.0 KiB more were asked for, 4.0 "
                                   "KiB of the limit of 100.0 KiB are free"));
  pool.Release(blocks.back());
  blocks.back() = pool.Allocate(16 * 1024);
  EXPECT_NE(blocks.back(), nullptr);
  for (void* block : blocks) pool.Release(block);
}

// 4k entries of 256 heads of a big model take 16 KiB pages; of a tiny one, 2 KiB.
TEST_F(BlockPoolTest, ResidentStaysNearUsed) {
  for (const auto& [page_bytes, pages] :
       std::vector<std::pair<int64_t, int64_t>>{{16384, 4096}, {16384, 256}, {2048, 512}}) {
    BlockPool pool(Tier::kHost, *ops_);
    std::vector<void*> blocks;
    for (int64_t i = 0; i < pages; ++i) blocks.push_back(pool.Allocate(page_bytes));
    EXPECT_LE(pool.resident_bytes(), pool.used_bytes() + pool.used_bytes() / 32 + page_bytes);
    // Half of it goes: whole slabs return.
    while (blocks.size() > static_cast<size_t>(pages) / 2) {
      pool.Release(blocks.back());
      blocks.pop_back();
    }
    EXPECT_EQ(pool.used_bytes(), pages / 2 * page_bytes);
    EXPECT_LE(pool.resident_bytes(), pool.used_bytes() * 17 / 16 + 4096);
    for (void* block : blocks) pool.Release(block);
  }
}

// Memory that was touched is used again, and is zero again; a pool with a limit gives it back.
TEST_F(BlockPoolTest, LargeSlabsAreSetAside) {
  constexpr int64_t kBlock = 64 << 10, kCount = 1400;  // 87 MiB: the last slabs are of full size
  for (const int64_t limit : {int64_t{0}, int64_t{1} << 30}) {
    BlockPool pool(Tier::kDevice, *ops_, limit);
    for (int round = 0; round < 2; ++round) {
      std::vector<void*> blocks;
      for (int64_t i = 0; i < kCount; ++i) {
        blocks.push_back(pool.Allocate(kBlock));
        ASSERT_NE(blocks.back(), nullptr);
        ASSERT_TRUE(AllAre(blocks.back(), kBlock, 0));
        std::memset(blocks.back(), 7, 64);
      }
      EXPECT_EQ(pool.used_bytes(), kBlock * kCount);
      EXPECT_EQ(pool.spare_bytes(), 0);
      EXPECT_LE(pool.resident_bytes(), pool.used_bytes() * 17 / 16);
      for (void* block : blocks) pool.Release(block);
      EXPECT_EQ(pool.resident_bytes(), 0);
      EXPECT_EQ(pool.spare_bytes() > 0, limit == 0);
    }
  }
}

TEST_F(BlockPoolTest, ClassesAreNearTheirSizes) {
  for (int64_t size = 1; size < 300000; size += 37) {
    const int64_t held = BlockPool::ClassBytes(size);
    ASSERT_GE(held, size);
    ASSERT_LT(held, size + std::max<int64_t>(64, size / 32 + 1));
  }
  for (const int64_t page : {64 * 128 * 2, 64 * 80 * 2, 8704, 4608, 3072}) {
    EXPECT_EQ(BlockPool::ClassBytes(page), page);
  }
}

TEST_F(BlockPoolTest, MissingDirectoryRefuses) {
  BlockPool pool(Tier::kDisk, *ops_, 0, ::testing::TempDir() + "no_such_directory");
  EXPECT_EQ(pool.Allocate(64), nullptr);
  EXPECT_THAT(pool.Refusal(64).message, ::testing::HasSubstr("no_such_directory"));
}

}  // namespace
}  // namespace kvgauge
