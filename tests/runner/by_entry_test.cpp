// SPDX-License-Identifier: Apache-2.0
// Caches that keep the numbers of each entry side by side, for readers of few single entries: what
// they hold, give and cost is that of a plain cache.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "runner/cache_fixture.h"
#include "runner/engine_fixture.h"

namespace kvgauge {
namespace {

class ByEntryTest : public CacheTest {
 protected:
  static void KeepByEntry(KvCache& cache) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      ASSERT_TRUE(cache.KeepByEntry(layer).ok());
      for (const KvHead& head : cache.Layer(layer)) EXPECT_TRUE(head.segments[0].by_entry);
    }
  }
  // Attention, too: over all entries, and over one in `step`.
  void ExpectSame(KvCache& got, KvCache& want, uint64_t step) {
    ASSERT_EQ(got.tokens(), want.tokens());
    EXPECT_EQ(got.Bytes(), want.Bytes());
    const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      int64_t width = 0;
      for (int64_t h = 0; h < kHeads; ++h) {
        EXPECT_EQ(got.Positions(layer, h), want.Positions(layer, h));
        EXPECT_TRUE(SameBits(Keys(got, layer, h), Keys(want, layer, h)));
        EXPECT_TRUE(SameBits(Values(got, layer, h), Values(want, layer, h)));
        width = std::max(width, want.length(layer, h));
      }
      EXPECT_TRUE(SameBits(Attend(got, layer, q), Attend(want, layer, q)));
      const int64_t columns = (width + 63) / 64;
      std::vector<int64_t> words(static_cast<size_t>(kQueryHeads * columns));
      for (int64_t g = 0; g < kQueryHeads; ++g) {
        for (int64_t e = g % 2; e < width; e += static_cast<int64_t>(step) + g % 3) {
          words[static_cast<size_t>(g * columns + e / 64)] |=
              static_cast<int64_t>(uint64_t{1} << e % 64);
        }
      }
      for (KvCache* cache : {&got, &want}) {
        cache->SetRead(layer, Tensor(words.data(), DType::kI64, {kQueryHeads, columns}));
      }
      EXPECT_TRUE(SameBits(Attend(got, layer, q), Attend(want, layer, q)));
      for (KvCache* cache : {&got, &want}) cache->SetRead(layer, {});
    }
  }
};

TEST_F(ByEntryTest, HoldsGivesAndCostsWhatAPlainCacheDoes) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(NameOf(dtype));
    CachePools pools(*ops_), plain_pools(*ops_);
    KvCache cache = NewCache(pools, dtype), plain = NewCache(plain_pools, dtype);
    for (KvCache* either : {&cache, &plain}) ASSERT_TRUE(Feed(*either, 650).ok());
    KeepByEntry(cache);
    const auto same = [&](uint64_t step) {
      ExpectSame(cache, plain, step);
      const int64_t used_bytes = pools.of(Tier::kDevice).used_bytes();
      EXPECT_EQ(used_bytes, plain_pools.of(Tier::kDevice).used_bytes());
      EXPECT_EQ(used_bytes, cache.Bytes().resident());
    };
    same(20);
    // New entries, one by one over the end of a page.
    for (int i = 0; i < 70; ++i) {
      for (KvCache* either : {&cache, &plain}) ASSERT_TRUE(Feed(*either, 1).ok());
    }
    same(7);
    // Heads that keep different numbers of entries, one of them merged into; and a window.
    std::vector<int32_t> most, few;
    for (int32_t e = 0; e < 720; ++e) {
      if (e % 5 != 3) most.push_back(e);
      if (e < 3 || e > 400) few.push_back(e);
    }
    const std::vector<int32_t> from = {8}, to = {9};
    const std::vector<float> weight = {0.25f};
    std::vector<HeadPlan> plan = {Keep(most), Keep(few)};
    plan[0].values.from = View(from, {1});
    plan[0].values.to = View(to, {1});
    plan[0].values.weight = View(weight, {1});
    for (KvCache* either : {&cache, &plain}) ASSERT_TRUE(either->Reduce(0, plan).ok());
    same(11);
    for (KvCache* either : {&cache, &plain}) ASSERT_TRUE(Feed(*either, 30).ok());
    same(3);
    for (KvCache* either : {&cache, &plain}) ASSERT_TRUE(either->Truncate(735).ok());
    same(9);
    for (const KvHead& head : cache.Layer(0)) EXPECT_TRUE(head.segments[0].by_entry);
  }
}

TEST_F(ByEntryTest, ForksDoNotSeeEachOther) {
  CachePools pools(*ops_);
  KvCache plain = NewCache(pools, DType::kBF16);
  ASSERT_TRUE(Feed(plain, 100).ok());
  KvCache cache = plain.Fork();
  KeepByEntry(cache);
  KvCache fork = cache.Fork();
  EXPECT_TRUE(fork.Layer(0)[0].segments[0].by_entry);
  EXPECT_FALSE(plain.Layer(0)[0].segments[0].by_entry);
  ASSERT_TRUE(Feed(fork, 3, 7).ok());
  ExpectSame(cache, plain, 4);
  ASSERT_TRUE(Feed(plain, 3, 7).ok());
  ExpectSame(fork, plain, 4);
}

// A written cache says nothing of it, and goes on to the same bits.
TEST_F(ByEntryTest, BytesBringItBack) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    CachePools pools(*ops_);
    KvCache plain = NewCache(pools, dtype);
    ASSERT_TRUE(Feed(plain, 90).ok());
    KvCache cache = plain.Fork();
    KeepByEntry(cache);
    const Result<std::string> bytes = cache.Serialize();
    ASSERT_TRUE(bytes.ok());
    EXPECT_EQ(*bytes, *plain.Serialize());
    KvCache again = NewCache(pools, dtype);
    ASSERT_TRUE(again.Deserialize(*bytes).ok());
    for (KvCache* either : {&cache, &again}) ASSERT_TRUE(Feed(*either, 5).ok());
    ExpectSame(cache, again, 6);
  }
}

// Layers of which a reader chooses few single entries are kept so, and no others.
TEST_F(EngineTest, ReadersOfFewEntriesGetThemSideBySide) {
  const auto kept = [&](const Method& method) {
    std::vector<bool> layers;
    EngineOptions options;
    options.inspect = [&](const CellResult&, const KvCache& cache, Compressor&) {
      for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
        layers.push_back(cache.Layer(layer)[0].segments[0].by_entry);
      }
    };
    const Contender contender = {.method = &method, .budget = {}, .model = &model_};
    const CellResult cell = RunEngine({contender}, options, {Sample(200, 1)}).at({0, 0});
    EXPECT_TRUE(cell.status.ok()) << cell.status.error().message;
    return layers;
  };
  const std::vector<bool> all = {true, true}, none = {false, false};
  EXPECT_EQ(kept(Shipped("loki", {"read.rank=8", "read.tokens=50"})), all);
  EXPECT_EQ(kept(Shipped("loki", {"read.rank=8", "read.tokens=51"})), none);
  EXPECT_EQ(kept(Shipped("tidaldecode", {"read.layers=\"0\"", "read.tokens=48"})),
            (std::vector<bool>{false, true}));
  EXPECT_EQ(kept(Shipped("quest", {"read.page=16", "read.tokens=32"})), none);
}

}  // namespace
}  // namespace kvgauge
