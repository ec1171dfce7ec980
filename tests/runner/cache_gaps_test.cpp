// SPDX-License-Identifier: Apache-2.0
// Entries given up one by one, as decode steps do: what a cache with gaps says and attends to,
// against a twin whose gaps are closed after every step.
#include <gtest/gtest.h>

#include <algorithm>

#include "cache_fixture.h"
#include "core/rng.h"

namespace kvgauge {
namespace {

class CacheGapsTest : public CacheTest {
 protected:
  static constexpr int64_t kTokens = 300;

  // Layer 0 of a cache that has dropped a few entries already, so that it knows positions.
  static KvCache Begun(CachePools& pools, const StorePlan* store) {
    KvCache cache = NewCache(pools);
    EXPECT_TRUE(Feed(cache, kTokens).ok());
    if (store != nullptr) {
      EXPECT_TRUE(cache.Store(0, *store).ok());
    }
    std::vector<int32_t> kept;
    for (int32_t i = 0; i < kTokens; ++i) {
      if (i % 50 != 7) kept.push_back(i);
    }
    const std::vector<HeadPlan> plan = {Keep(kept), Keep(kept)};
    EXPECT_TRUE(cache.Reduce(0, plan).ok());
    return cache;
  }

  // One entry of each head goes, the same in every cache that is as long; every third time its
  // value joins those of two others.
  static void Drop(KvCache& cache, uint64_t step) {
    std::vector<std::vector<int32_t>> kept(kHeads), from(kHeads), to(kHeads);
    const std::vector<float> weight = {0.5f};
    std::vector<HeadPlan> plan;
    for (int64_t h = 0; h < kHeads; ++h) {
      Rng rng(step, static_cast<uint64_t>(h));
      const auto i = static_cast<size_t>(h);
      const auto length = static_cast<int32_t>(cache.length(0, h));
      const auto gone = static_cast<int32_t>(rng.NextBelow(static_cast<uint64_t>(length - 3)));
      for (int32_t e = 0; e < length; ++e) {
        if (e != gone) kept[i].push_back(e);
      }
      plan.push_back(Keep(kept[i]));
      if (step % 3 != 0) continue;
      from[i] = {gone};
      to[i] = {gone + 1, length - 1};
      plan.back().values = {.from = View(from[i], {1}),
                            .to = View(to[i], {2}),
                            .weight = View(weight, {1}),
                            .self = {}};
    }
    ASSERT_TRUE(cache.Reduce(0, plan).ok());
  }

  static std::vector<float> Scores(const KvCache& cache) {
    const int64_t width = std::max(cache.length(0, 0), cache.length(0, 1));
    std::vector<float> scores(static_cast<size_t>(kHeads * width));
    cache.ReadScores(0, View(scores, {kHeads, width}));
    return scores;
  }

  static void ExpectSame(const KvCache& cache, const KvCache& twin) {
    for (int64_t h = 0; h < kHeads; ++h) {
      ASSERT_EQ(cache.length(0, h), twin.length(0, h));
      EXPECT_EQ(cache.Positions(0, h), twin.Positions(0, h));
      EXPECT_EQ(cache.LogWeights(0, h), twin.LogWeights(0, h));
      EXPECT_TRUE(SameBits(Keys(cache, 0, h), Keys(twin, 0, h)));
      EXPECT_TRUE(SameBits(Values(cache, 0, h), Values(twin, 0, h)));
    }
    EXPECT_EQ(Scores(cache), Scores(twin));
    EXPECT_EQ(cache.Bytes().logical(), twin.Bytes().logical());
  }

  void RunAgainstTwin(const StorePlan* store) {
    CachePools pools(*ops_), twin_pools(*ops_);
    KvCache cache = Begun(pools, store), twin = Begun(twin_pools, store);
    const std::vector<float> scores = RandomValues(kHeads * cache.length(0, 0), 9);
    for (KvCache* one : {&cache, &twin}) {
      ASSERT_TRUE(one->KeepScores(0, View(scores, {kHeads, cache.length(0, 0)})).ok());
    }
    int64_t with_gaps = 0;
    for (uint64_t step = 0; step < 24; ++step) {
      for (KvCache* one : {&cache, &twin}) {
        ASSERT_TRUE(Feed(*one, 1).ok());
        Drop(*one, step);
      }
      ASSERT_TRUE(twin.CloseGaps().ok());
      EXPECT_FALSE(twin.has_gaps(0));
      with_gaps += cache.has_gaps(0) ? 1 : 0;
      // One gap for 64 entries, and what came since.
      EXPECT_LE(cache.stored_width(0), cache.length(0, 0) * 65 / 64 + 1);
      ExpectSame(cache, twin);
      EXPECT_EQ(cache.Bytes().resident(), pools.of(Tier::kDevice).used_bytes());
      const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3 + step);
      EXPECT_TRUE(AllWithin(Attend(cache, 0, q), Attend(twin, 0, q), 2e-5));
      // Readers count entries that are held.
      const int64_t columns = (cache.length(0, 0) + 63) / 64;
      std::vector<int64_t> words(static_cast<size_t>(kQueryHeads * columns));
      Rng rng(step, 7);
      for (int64_t& word : words) word = static_cast<int64_t>(rng.NextU64());
      for (KvCache* one : {&cache, &twin}) {
        one->SetRead(0, Tensor(words.data(), DType::kI64, {kQueryHeads, columns}));
      }
      EXPECT_TRUE(AllWithin(Attend(cache, 0, q), Attend(twin, 0, q), 2e-5));
      for (KvCache* one : {&cache, &twin}) one->SetRead(0, {});
      EXPECT_TRUE(AllWithin(Attend(cache, 0, q), Attend(twin, 0, q), 2e-5));
    }
    EXPECT_GE(with_gaps, 12);
  }
};

TEST_F(CacheGapsTest, NothingSeesThem) { RunAgainstTwin(nullptr); }

TEST_F(CacheGapsTest, RawKeysTurnByTheirPlaceAmongWhatIsHeld) {
  for (const PositionPolicy policy :
       {PositionPolicy::kSlot, PositionPolicy::kOriginal, PositionPolicy::kClipped}) {
    StorePlan plan;
    plan.raw_keys = true;
    plan.position = policy;
    plan.position_limit = 100;
    RunAgainstTwin(&plan);
  }
}

// Forks and bytes hold gaps as they are; larger plans begin from what is held.
TEST_F(CacheGapsTest, GoWithCopiesAndEndWithLargerPlans) {
  CachePools pools(*ops_);
  KvCache cache = Begun(pools, nullptr);
  ASSERT_TRUE(cache.KeepScores(0, View(std::vector<float>(2 * 294), {2, 294})).ok());
  for (uint64_t step = 0; step < 3; ++step) Drop(cache, step);
  ASSERT_TRUE(cache.has_gaps(0));
  const KvCache fork = cache.Fork();
  const std::vector<float> keys = Keys(cache, 0, 1);
  const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3), was = Attend(cache, 0, q);
  for (uint64_t step = 3; step < 9; ++step) Drop(cache, step);
  EXPECT_TRUE(SameBits(Keys(fork, 0, 1), keys));
  EXPECT_TRUE(SameBits(Attend(fork, 0, q), was));

  CachePools other_pools(*ops_);
  KvCache other = NewCache(other_pools);
  ASSERT_TRUE(other.Deserialize(*fork.Serialize()).ok());
  ExpectSame(other, fork);
  EXPECT_TRUE(other.has_gaps(0));
  EXPECT_TRUE(SameBits(Attend(other, 0, q), was));

  KvCache half = fork.Fork();
  std::vector<int32_t> kept;
  for (int32_t i = 0; i < half.length(0, 0); i += 2) kept.push_back(i);
  const std::vector<HeadPlan> plan = {Keep(kept), Keep(kept)};
  ASSERT_TRUE(half.Reduce(0, plan).ok());
  EXPECT_FALSE(half.has_gaps(0));
  EXPECT_TRUE(SameBits(Keys(half, 0, 1), Picked(keys, kept)));
  ASSERT_TRUE(half.Truncate(100).ok());
  EXPECT_LT(half.Positions(0, 1).back(), 100);
}

}  // namespace
}  // namespace kvgauge
