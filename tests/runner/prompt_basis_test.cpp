// SPDX-License-Identifier: Apache-2.0
// Entries of a prompt in a basis of their own: read, attended to, counted, written and refused.
#include "methods/layouts/prompt_basis.h"

#include <gmock/gmock.h>

#include <limits>

#include "methods/layouts/group_basis.h"
#include "runner/cache_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class PromptBasisTest : public CacheTest {
 protected:
  static constexpr int64_t kWidth = kHeads * kDim, kRank = 40;

  // Unit vectors: all numbers of the first head, and the first ones of the second.
  static std::vector<float> Units(int64_t rank) {
    std::vector<float> basis(static_cast<size_t>(kWidth * rank));
    for (int64_t i = 0; i < rank; ++i) basis[static_cast<size_t>(i * rank + i)] = 1.0f;
    return basis;
  }
  static PromptBasis Layout(const std::vector<float>& basis, bool keys, bool values) {
    PromptBasis layout;
    if (keys) layout.key_rank = kRank;
    if (values) layout.value_rank = kRank;
    if (keys) layout.key_basis = View(basis, {kWidth, kRank});
    if (values) layout.value_basis = View(basis, {kWidth, kRank});
    return layout;
  }
  static Status StoreAll(KvCache& cache, const PromptBasis& layout) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      KVG_TRY(cache.Store(layer, PlanOf(layout)));
    }
    return {};
  }

  const std::vector<float> basis_ = Units(kRank);
};

TEST_F(PromptBasisTest, ThePromptLosesWhatTheBasisLacksAndLaterEntriesAreWhole) {
  for (const bool keys : {false, true}) {
    CachePools pools(*ops_);
    KvCache plain = NewCache(pools), cache = NewCache(pools);
    for (KvCache* one : {&plain, &cache}) ASSERT_TRUE(Feed(*one, 70).ok());
    ASSERT_TRUE(StoreAll(cache, Layout(basis_, keys, true)).ok());
    EXPECT_EQ(cache.raw_keys(0), keys);
    ASSERT_TRUE(Feed(plain, 3, 9).ok());
    std::vector<float> own = Values(plain, 1, 1);
    for (size_t i = 0; i < 70 * kDim; ++i) {
      if (i % kDim >= kRank - kDim) own[i] = 0;
    }
    ASSERT_TRUE(Feed(cache, 3, 9).ok());
    EXPECT_TRUE(AllWithin(Values(cache, 1, 0), Values(plain, 1, 0), 1e-6));
    EXPECT_TRUE(AllWithin(Values(cache, 1, 1), own, 1e-6));
    // The first head's keys are all there, turned back and forth.
    const std::vector<float> held = Keys(cache, 0, 0), whole = Keys(plain, 0, 0);
    EXPECT_TRUE(AllWithin(std::span(held).first(70 * kDim), std::span(whole).first(70 * kDim),
                          keys ? 2e-5 : 0));
    for (int64_t layer = 0; layer < kLayers; ++layer) ExpectAttendsAsRead(cache, layer);
    const std::vector<float> some = Values(cache, 0, 1);
    std::vector<float> rows(6 * kDim);
    cache.ReadValues(0, 1, 66, View(rows, {6, kDim}));
    EXPECT_TRUE(AllWithin(rows, std::span(some).subspan(66 * kDim, 6 * kDim), 1e-6));
  }
}

TEST_F(PromptBasisTest, BytesAreWhatThePoolHasGivenOutAndBringItBack) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 70).ok());
  ASSERT_TRUE(StoreAll(cache, Layout(basis_, true, false)).ok());
  ASSERT_TRUE(Feed(cache, 2, 9).ok());
  const KvBytes bytes = cache.Bytes();
  const int64_t keys = 70 * kRank + 2 * kWidth, values = 72 * kWidth;
  EXPECT_EQ(bytes.payload, kLayers * 4 * (keys + values));
  EXPECT_EQ(bytes.low_rank, kLayers * 4 * kWidth * kRank);
  EXPECT_EQ(bytes.resident(), pools.of(Tier::kDevice).used_bytes());
  const Result<std::string> written = cache.Serialize();
  ASSERT_TRUE(written.ok());
  KvCache again = NewCache(pools), fork = cache.Fork();
  ASSERT_TRUE(again.Deserialize(*written).ok());
  for (KvCache* one : {&again, &fork}) ASSERT_TRUE(Feed(*one, 5, 4).ok());
  EXPECT_EQ(Keys(again, 1, 1), Keys(fork, 1, 1));
  EXPECT_EQ(Values(again, 0, 0), Values(fork, 0, 0));
  ExpectAttendsAsRead(again, 1);
}

TEST_F(PromptBasisTest, RefusesWhatDoesNotFit) {
  CachePools pools(*ops_);
  const auto refusal = [&](const PromptBasis& layout) {
    KvCache cache = NewCache(pools);
    EXPECT_TRUE(Feed(cache, 10).ok());
    const Status status = StoreAll(cache, layout);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(refusal(Layout(basis_, true, true)), "");
  PromptBasis layout = Layout(basis_, true, false);
  layout.key_rank = 39;
  EXPECT_THAT(refusal(layout), HasSubstr("a basis [64, 40]; right is [64, 39]"));
  std::vector<float> broken = basis_;
  broken[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal(Layout(broken, false, true)), HasSubstr("a number that is not finite"));
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 10).ok());
  ASSERT_TRUE(StoreAll(cache, Layout(basis_, true, true)).ok());
  const std::vector<int32_t> kept = {1, 2};
  const std::vector<HeadPlan> heads = {Keep(kept), Keep(kept)};
  EXPECT_THAT(cache.Reduce(0, heads).error().message,
              HasSubstr("whose coordinates heads share cannot be dropped"));
  // Heads that hold different entries have none to share.
  KvCache uneven = NewCache(pools);
  ASSERT_TRUE(Feed(uneven, 10).ok());
  const std::vector<int32_t> all = {0, 1, 2, 3};
  const std::vector<HeadPlan> different = {Keep(kept), Keep(all)};
  ASSERT_TRUE(uneven.Reduce(0, different).ok());
  EXPECT_THAT(uneven.Store(0, PlanOf(Layout(basis_, true, true))).error().message,
              HasSubstr("hold 2 and 4 entries, so they cannot share coordinates"));
}

TEST_F(PromptBasisTest, LayersOfAGroupShareCoordinates) {
  CachePools pools(*ops_);
  KvCache plain = NewCache(pools), cache = NewCache(pools);
  // The upper layer holds what the lower one does, and keys and values 4 directions in all.
  const std::vector<float> directions = RandomValues(4 * kWidth, 7);
  for (KvCache* one : {&plain, &cache}) {
    ASSERT_TRUE(one->Append(70).ok());
    std::vector<float> rows(70 * kWidth);
    const std::vector<float> weights = RandomValues(70 * 4, 8);
    for (int64_t i = 0; i < 70; ++i) {
      for (int64_t d = 0; d < kWidth; ++d) {
        for (int64_t k = 0; k < 4; ++k) {
          rows[i * kWidth + d] += weights[i * 4 + k] * directions[k * kWidth + d];
        }
      }
    }
    const Tensor all = View(rows, {70, kHeads, kDim});
    for (int64_t layer = 0; layer < kLayers; ++layer) one->Write(layer, all, all);
  }
  GroupBasis layout;
  layout.layers = kLayers;
  layout.value_rank = 4;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    layout.below = layer;
    ASSERT_TRUE(cache.Store(layer, PlanOf(layout)).ok());
  }
  ASSERT_TRUE(Feed(cache, 3, 9).ok());
  ASSERT_TRUE(Feed(plain, 3, 9).ok());
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(Keys(cache, layer, 1), Keys(plain, layer, 1));
    EXPECT_TRUE(AllWithin(Values(cache, layer, 0), Values(plain, layer, 0), 1e-2));  // of 1000
    ExpectAttendsAsRead(cache, layer);
  }
  // One stream of coordinates for both layers.
  const KvBytes bytes = cache.Bytes();
  EXPECT_EQ(bytes.payload, 4 * (kLayers * (73 + 3) * kWidth + 70 * 4));
  EXPECT_EQ(bytes.low_rank, kLayers * 4 * kWidth * 4);
  EXPECT_EQ(bytes.resident() + plain.Bytes().resident(), pools.of(Tier::kDevice).used_bytes());
  CachePools others(*ops_);
  KvCache again = NewCache(others);
  ASSERT_TRUE(again.Deserialize(*cache.Serialize()).ok());
  EXPECT_EQ(again.Bytes(), bytes);
  EXPECT_EQ(Values(again, 1, 1), Values(cache, 1, 1));
  const std::vector<int32_t> few = {0, 3};
  const std::vector<HeadPlan> plans = {Keep(few), Keep(few)};
  EXPECT_FALSE(cache.Reduce(0, plans).ok());
  layout.value_rank = 5;
  KvCache other = NewCache(pools);
  ASSERT_TRUE(Feed(other, 5).ok());
  EXPECT_THAT(other.Store(1, PlanOf(layout)).error().message,
              HasSubstr("a layer of the group is stored as plain"));
}

}  // namespace
}  // namespace kvgauge
