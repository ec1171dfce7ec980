// SPDX-License-Identifier: Apache-2.0
// Coordinates in bases that learn: what is read, attended to, counted and refused.
#include "methods/layouts/learning_basis.h"

#include <gmock/gmock.h>

#include <cmath>

#include "methods/basis_change.h"
#include "runner/cache_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class LearningBasisTest : public CacheTest {
 protected:
  static constexpr int64_t kRank = 12, kFirst = 3, kNewest = 10, kEvery = 4, kTokens = 100;

  // Columns of orthogonal matrices, [kHeads * kDim, kRank].
  static std::vector<float> Columns() {
    std::vector<float> columns;
    for (int64_t h = 0; h < kHeads; ++h) {
      const BasisChange all = RandomBasis(kDim, kDim, 1, 5 + static_cast<uint64_t>(h));
      for (int64_t i = 0; i < kDim; ++i) {
        const auto row = all.there->begin() + i * kDim;
        columns.insert(columns.end(), row, row + kRank);
      }
    }
    return columns;
  }

  StorePlan Plan(bool turns = false) const {
    LearningBasis layout;
    layout.key_rank = layout.value_rank = kRank;
    layout.sinks = kFirst;
    layout.recent = kNewest;
    layout.every = kEvery;
    layout.step = 0.05f;
    layout.turns = turns;
    layout.key_basis = layout.value_basis = View(columns_, {kHeads * kDim, kRank});
    return PlanOf(layout);
  }
  static Status StoreAll(KvCache& cache, const StorePlan& plan) {
    for (int64_t layer = 0; layer < kLayers; ++layer) KVG_TRY(cache.Store(layer, plan));
    return {};
  }

  // Rows [n, kDim] as a head's basis [kDim, kRank] holds them.
  static std::vector<float> Held(const std::vector<float>& rows, const float* basis) {
    std::vector<float> held(rows.size());
    for (int64_t i = 0; i < std::ssize(rows) / kDim; ++i) {
      for (int64_t r = 0; r < kRank; ++r) {
        double sum = 0;
        for (int64_t d = 0; d < kDim; ++d) sum += double{rows[i * kDim + d]} * basis[d * kRank + r];
        for (int64_t d = 0; d < kDim; ++d) {
          held[i * kDim + d] += static_cast<float>(sum * basis[d * kRank + r]);
        }
      }
    }
    return held;
  }

  const std::vector<float> columns_ = Columns();
};

TEST_F(LearningBasisTest, WhatIsBetweenIsWhatTheBasisHolds) {
  CachePools pools(*ops_);
  KvCache whole = NewCache(pools);
  ASSERT_TRUE(Feed(whole, kTokens).ok());
  KvCache cache = whole.Fork();
  ASSERT_TRUE(StoreAll(cache, Plan()).ok());
  for (int64_t h = 0; h < kHeads; ++h) {
    std::vector<float> want = Keys(whole, 1, h);
    const std::vector<float> held = Held(want, columns_.data() + h * kDim * kRank);
    std::copy(held.begin() + kFirst * kDim, held.end() - kNewest * kDim,
              want.begin() + kFirst * kDim);
    EXPECT_TRUE(AllWithin(Keys(cache, 1, h), want, 1e-4));
    std::vector<float> part(static_cast<size_t>(5 * kDim));
    cache.ReadKeys(1, h, 88, View(part, {5, kDim}));
    EXPECT_TRUE(AllWithin(part, {want.begin() + 88 * kDim, want.begin() + 93 * kDim}, 1e-4));
  }
  for (int64_t layer = 0; layer < kLayers; ++layer) ExpectAttendsAsRead(cache, layer, 1e-3);
  const KvBytes bytes = cache.Bytes();
  EXPECT_EQ(bytes.payload, kLayers * kHeads * 2 * 4 *
                               ((kFirst + kNewest) * kDim + (kTokens - kFirst - kNewest) * kRank));
  EXPECT_EQ(bytes.low_rank, kLayers * kHeads * 2 * 4 * kDim * kRank);
}

// One step at a time or several at once; forks keep the basis they were made with.
TEST_F(LearningBasisTest, NewEntriesTeachAndOlderOnesBecomeCoordinates) {
  for (const bool turns : {false, true}) {
    CachePools pools(*ops_);
    KvCache cache = NewCache(pools);
    ASSERT_TRUE(Feed(cache, kTokens).ok());
    ASSERT_TRUE(StoreAll(cache, Plan(turns)).ok());
    const KvCache before = cache.Fork();
    KvCache at_once = cache.Fork();
    const std::vector<float> held = Keys(before, 0, 1);
    for (int64_t i = 0; i < 2 * kEvery + 1; ++i) {
      ASSERT_TRUE(Feed(cache, 1).ok());
      ASSERT_TRUE(cache.Seal().ok());
      const int64_t newest = kNewest + (i + 1) % kEvery;
      EXPECT_EQ(cache.InClasses(0, 0), kTokens + i + 1 - newest);
    }
    ASSERT_TRUE(Feed(at_once, 2 * kEvery + 1).ok());
    ASSERT_TRUE(at_once.Seal().ok());
    EXPECT_EQ(Keys(at_once, 0, 1), Keys(cache, 0, 1));
    EXPECT_EQ(Values(at_once, 1, 0), Values(cache, 1, 0));
    EXPECT_EQ(Keys(before, 0, 1), held);
    // The basis moved: under what stays as coordinates, or to what it can still hold.
    const std::vector<float> after = Keys(cache, 0, 1);
    EXPECT_EQ(std::vector<float>(after.begin(), after.begin() + kFirst * kDim),
              std::vector<float>(held.begin(), held.begin() + kFirst * kDim));
    double moved = 0, grown = 0;
    for (int64_t i = kFirst; i < kTokens - kNewest; ++i) {
      double was = 0, is = 0;
      for (int64_t d = 0; d < kDim; ++d) {
        const double a = held[i * kDim + d], b = after[i * kDim + d];
        moved = std::max(moved, std::abs(a - b));
        was += a * a;
        is += b * b;
      }
      grown = std::max(grown, std::sqrt(is) - std::sqrt(was));
      if (!turns) {
        EXPECT_NEAR(std::sqrt(is), std::sqrt(was), 1e-4);
      }
    }
    EXPECT_GT(moved, 1e-3);
    EXPECT_LT(grown, 1e-4);
    ExpectAttendsAsRead(cache, 0, 1e-3);
  }
}

TEST_F(LearningBasisTest, EntriesGoAndBytesAreThoseOfThePool) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools, DType::kF16);
  ASSERT_TRUE(Feed(cache, kTokens).ok());
  ASSERT_TRUE(StoreAll(cache, Plan()).ok());
  ASSERT_TRUE(Feed(cache, kEvery).ok());
  ASSERT_TRUE(cache.Seal().ok());
  const std::vector<int32_t> few = {0, 5, 33, 89, 99}, more = {1, 2, 3, 50, 60, 91, 92, 103};
  const std::vector<float> keys = Picked(Keys(cache, 1, 0), few);
  const std::vector<float> values = Picked(Values(cache, 1, 1), more);
  const std::vector<HeadPlan> plans = {Keep(few), Keep(more)};
  ASSERT_TRUE(cache.Reduce(1, plans).ok());
  EXPECT_EQ(Keys(cache, 1, 0), keys);
  EXPECT_EQ(Values(cache, 1, 1), values);
  ExpectAttendsAsRead(cache, 1, 2e-3);
  EXPECT_EQ(cache.Bytes().resident(), pools.of(Tier::kDevice).used_bytes());
  EXPECT_GE(cache.Bytes().slack, 0);
  ASSERT_TRUE(cache.Truncate(50).ok());
  EXPECT_EQ(cache.length(0, 0), 50);
  ExpectAttendsAsRead(cache, 0, 2e-3);
  const std::vector<int32_t> one = {0};
  HeadPlan merging = Keep(one);
  const std::vector<int32_t> from = {0}, to = {1};
  const std::vector<float> weight = {0.5f};
  merging.keys = {View(from, {1}), View(to, {1}), View(weight, {1}), {}};
  const std::vector<HeadPlan> merges = {merging, merging};
  EXPECT_THAT(cache.Reduce(1, merges).error().message, HasSubstr("cannot be merged"));
}

TEST_F(LearningBasisTest, WhatDoesNotFitIsRefused) {
  CachePools pools(*ops_);
  const auto refusal = [&](LearningBasis layout) {
    KvCache cache = NewCache(pools);
    EXPECT_TRUE(Feed(cache, 20).ok());
    const Status status = cache.Store(0, PlanOf(std::move(layout)));
    return status.ok() ? std::string() : status.error().message;
  };
  const LearningBasis right = *Plan().Get<LearningBasis>();
  EXPECT_EQ(refusal(right), "");
  LearningBasis wrong = right;
  wrong.value_rank = kRank + 1;
  EXPECT_THAT(refusal(wrong), HasSubstr("12 in a row; right are 64 rows of 13"));
  wrong = right;
  wrong.every = 0;
  EXPECT_THAT(refusal(wrong), HasSubstr("every 0"));
  std::vector<float> broken = columns_;
  broken[7] = NAN;
  wrong = right;
  wrong.key_basis = View(broken, {kHeads * kDim, kRank});
  EXPECT_THAT(refusal(wrong), HasSubstr("not finite"));
}

TEST_F(LearningBasisTest, AStepTurnsABasisToWhatRowsHave) {
  std::vector<float> basis = {1, 0};
  const std::vector<float> rows = {1, 1};
  // (1, 0) + 1 * (1, 1), made a unit.
  OjaStep(*ops_, View(rows, {1, 2}), 1.0f, View(basis, {2, 1}));
  EXPECT_NEAR(basis[0], 2 / std::sqrt(5.0), 1e-6);
  EXPECT_NEAR(basis[1], 1 / std::sqrt(5.0), 1e-6);
}

}  // namespace
}  // namespace kvgauge
