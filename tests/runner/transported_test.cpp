// SPDX-License-Identifier: Apache-2.0
// Entries that went through a coder for transport: what they become, and what is written.
#include "methods/layouts/transported.h"

#include <gmock/gmock.h>

#include "runner/cache_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class TransportedTest : public CacheTest {
 protected:
  static constexpr int64_t kTokens = 300;  // a whole stretch of shared tables, and some more

  static StorePlan Plan(int64_t key_bins = 16) {
    Transported layout;
    layout.key_bins = key_bins;
    layout.value_bins = 12;
    return PlanOf(layout);
  }
  Status Fill(KvCache& cache) {
    KVG_TRY(Feed(cache, kTokens));
    for (int64_t layer = 0; layer < kLayers; ++layer) KVG_TRY(cache.Store(layer, Plan()));
    return {};
  }
  const std::vector<float> q_ = RandomValues(kQueryHeads * kDim, 3, 0.3f);
};

TEST_F(TransportedTest, HeadsShareTheStepsOfAToken) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Fill(cache).ok());
  std::vector<std::vector<float>> held, want;
  for (int64_t h = 0; h < kHeads; ++h) held.push_back(Keys(cache, 0, h));
  KvCache plain = NewCache(pools);
  ASSERT_TRUE(Feed(plain, kTokens).ok());
  for (int64_t h = 0; h < kHeads; ++h) want.push_back(Keys(plain, 0, h));
  for (size_t t = 0; t < kTokens; ++t) {
    float largest = 0;
    for (const std::vector<float>& head : want) {
      for (size_t c = 0; c < kDim; ++c) largest = std::max(largest, std::abs(head[t * kDim + c]));
    }
    for (size_t h = 0; h < kHeads; ++h) {
      for (size_t c = 0; c < kDim; ++c) {
        const float got = held[h][t * kDim + c], step = largest / 7;
        EXPECT_NEAR(got, want[h][t * kDim + c], step * 0.5001f);
        EXPECT_NEAR(std::round(got / step) * step, got, step * 1e-4f);
      }
    }
  }
}

TEST_F(TransportedTest, WrittenCachesHoldCodesAndGoOnAlike) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    CachePools pools(*ops_);
    KvCache cache = NewCache(pools, dtype), plain = NewCache(pools, dtype);
    ASSERT_TRUE(Fill(cache).ok());
    ASSERT_TRUE(Feed(plain, kTokens).ok());
    KvCache again = NewCache(pools, dtype);
    std::string bytes = *cache.Serialize();
    // Four bits a number at most, and the shares of two stretches.
    EXPECT_LT(bytes.size(), plain.Serialize()->size() * 9 / 16);
    const Status filled = again.Deserialize(bytes);
    ASSERT_TRUE(filled.ok()) << filled.error().message;
    for (int step = 0; step < 3; ++step) {
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        EXPECT_TRUE(SameBits(Attend(again, layer, q_), Attend(cache, layer, q_)));
      }
      EXPECT_EQ(*again.Serialize(), *cache.Serialize());
      for (KvCache* either : {&cache, &again}) {
        ASSERT_TRUE(Feed(*either, 7, 5).ok());
        ASSERT_TRUE(either->Seal().ok());
      }
    }
    // Back into the middle of what was coded.
    for (KvCache* either : {&cache, &again}) ASSERT_TRUE(either->Truncate(270).ok());
    bytes = *cache.Serialize();
    EXPECT_EQ(*again.Serialize(), bytes);
    KvCache shorter = NewCache(pools, dtype);
    ASSERT_TRUE(shorter.Deserialize(bytes).ok());
    EXPECT_EQ(Keys(shorter, 1, 1), Keys(cache, 1, 1));
  }
}

// Entries that come in the place of coded ones are as they are.
TEST_F(TransportedTest, CutCachesGoOnPlain) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Fill(cache).ok());
  ASSERT_TRUE(cache.Truncate(270).ok());
  ASSERT_TRUE(Feed(cache, 20, 5).ok());
  KvCache again = NewCache(pools);
  ASSERT_TRUE(again.Deserialize(*cache.Serialize()).ok());
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(Keys(again, layer, 1), Keys(cache, layer, 1));
  }
}

TEST_F(TransportedTest, BytesThatLieAreRefusedOrReadable) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools, DType::kF16);
  ASSERT_TRUE(Fill(cache).ok());
  const std::string bytes = *cache.Serialize();
  for (size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 997) {
    std::string wrong = bytes;
    wrong[at] = static_cast<char>(wrong[at] ^ 0x41);
    KvCache other = NewCache(pools, DType::kF16), cut = NewCache(pools, DType::kF16);
    if (other.Deserialize(wrong).ok()) {
      EXPECT_EQ(Attend(other, 1, q_).size(), static_cast<size_t>(kQueryHeads * kDim));
    }
    EXPECT_FALSE(cut.Deserialize(std::string_view(bytes).substr(0, at)).ok()) << at;
  }
}

TEST_F(TransportedTest, WhatCannotBeDoneSaysSo) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Fill(cache).ok());
  const std::vector<int32_t> two = {0, 1}, three = {0, 2, 5};
  const std::vector<HeadPlan> heads = {Keep(two), Keep(two)};
  EXPECT_THAT(cache.Reduce(0, heads).error().message, HasSubstr("cannot be dropped or merged"));
  KvCache ragged = NewCache(pools);
  ASSERT_TRUE(Feed(ragged, 9).ok());
  const std::vector<HeadPlan> uneven = {Keep(two), Keep(three)};
  ASSERT_TRUE(ragged.Reduce(0, uneven).ok());
  EXPECT_THAT(ragged.Store(0, Plan()).error().message, HasSubstr("hold 2 and 3 entries"));
  const ModelShape shape;
  for (const int64_t bins : {2, 15, 258}) {
    Transported layout;
    layout.key_bins = bins;
    StoreUse use;
    use.shape = &shape;
    EXPECT_THAT(layout.Check(use).error().message, HasSubstr("right is an even number, 4 .. 256"));
  }
}

}  // namespace
}  // namespace kvgauge
