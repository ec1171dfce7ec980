// SPDX-License-Identifier: Apache-2.0
// Entries in other coordinates: read, attended to, evicted, counted and refused.
#include "methods/layouts/transformed.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "core/strings.h"
#include "methods/basis_change.h"
#include "runner/cache_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class TransformedTest : public CacheTest {
 protected:
  // Uncoded, or 4 bits along an entry.
  static StorePlan Plan(BasisChange keys, BasisChange values, bool coded, bool raw = false) {
    Coded layout;
    layout.keys.side = KvSide::kKeys;
    layout.values.side = KvSide::kValues;
    for (KvCodec* codec : {&layout.keys, &layout.values}) {
      codec->dim = kDim;
      codec->dtype = DType::kF32;
      if (!coded) continue;
      codec->kind = KvCodecKind::kAffine;
      codec->bits = 4;
      codec->group = kDim;
    }
    layout.seal_values.keep_recent = coded ? 30 : 0;
    return PlanOf(Transformed(layout, std::move(keys), std::move(values)), {.raw = raw});
  }
  static Status StoreAll(KvCache& cache, const StorePlan& plan) {
    for (int64_t layer = 0; layer < kLayers; ++layer) KVG_TRY(cache.Store(layer, plan));
    return {};
  }

  // One matrix for each head: twice the identity and back, so that nothing rounds.
  static BasisChange Doubling() {
    auto there = std::make_shared<std::vector<float>>(kHeads * kDim * kDim);
    auto back = std::make_shared<std::vector<float>>(there->size());
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < kDim; ++i) {
        // The second head's are in reverse order too.
        const int64_t j = h == 0 ? i : kDim - 1 - i;
        (*there)[static_cast<size_t>((h * kDim + i) * kDim + j)] = 2.0f;
        (*back)[static_cast<size_t>((h * kDim + i) * kDim + j)] = 0.5f;
      }
    }
    BasisChange change;
    change.heads = kHeads;
    change.dim = change.stored = kDim;
    change.there = std::move(there);
    change.back = std::move(back);
    return change;
  }

  const std::vector<float> q_ = RandomValues(kQueryHeads * kDim, 3, 0.3f);
};

TEST_F(TransformedTest, UncodedEntriesAreAttendedToAsIfTheyWerePlain) {
  const std::vector<BasisChange> changes = {HadamardBasis(kDim), SignedHadamardBasis(kDim, 3),
                                            RandomBasis(kDim, kDim, 1, 5), Doubling(),
                                            RandomBasis(kDim, 3 * kDim, 4, 6)};
  for (size_t i = 0; i < changes.size(); ++i) {
    for (const bool raw : {false, true}) {
      CachePools pools(*ops_);
      KvCache plain = NewCache(pools), cache = NewCache(pools);
      for (KvCache* one : {&plain, &cache}) {
        ASSERT_TRUE(Feed(*one, 100).ok());
        const StorePlan own = raw ? Plan({}, {}, false, true) : StorePlan();
        ASSERT_TRUE(
            StoreAll(*one, one == &plain ? own : Plan(changes[i], changes[i], false, raw)).ok());
        ASSERT_TRUE(Feed(*one, 30, 9).ok());
      }
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        SCOPED_TRACE(StrCat("change ", i, raw ? ", raw" : ""));
        EXPECT_TRUE(AllWithin(Keys(cache, layer, 1), Keys(plain, layer, 1), 2e-5));
        EXPECT_TRUE(AllWithin(Values(cache, layer, 0), Values(plain, layer, 0), 2e-5));
        EXPECT_TRUE(AllWithin(Attend(cache, layer, q_), Attend(plain, layer, q_), 2e-5));
      }
    }
  }
}

TEST_F(TransformedTest, CodesAreOfTheOtherCoordinates) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 100).ok());
  ASSERT_TRUE(StoreAll(cache, Plan(Doubling(), HadamardBasis(kDim), true)).ok());
  ASSERT_TRUE(Feed(cache, 30, 9).ok());
  ASSERT_TRUE(cache.Seal().ok());
  // The same by hand: rows in those coordinates through the codec, and back.
  const std::vector<float> rows = Values(cache, 0, 1);
  const BasisChange hadamard = HadamardBasis(kDim);
  std::vector<float> want;
  for (int64_t e = 0; e < 130; ++e) {
    const std::vector<float> all = e < 100 ? Rows(0, e, 1, 501) : Rows(0, e, 1, 509);
    std::vector<double> turned(kDim);
    for (int64_t j = 0; j < kDim; ++j) {
      for (int64_t i = 0; i < kDim; ++i) {
        turned[j] += double{all[kDim + i]} * (*hadamard.there)[i * kDim + j];
      }
    }
    if (e < 100) {
      const auto [low, high] = std::minmax_element(turned.begin(), turned.end());
      const double zero = F16ToF32(F32ToF16(static_cast<float>(*low)));
      const double step = F16ToF32(F32ToF16(static_cast<float>((*high - *low) / 15)));
      for (double& v : turned)
        v = zero + step * std::clamp(std::nearbyint((v - zero) / step), 0.0, 15.0);
    }
    for (int64_t i = 0; i < kDim; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < kDim; ++j) sum += turned[j] * (*hadamard.there)[i * kDim + j];
      want.push_back(static_cast<float>(sum));
    }
  }
  EXPECT_TRUE(AllWithin(rows, want, 1e-4));
  ExpectAttendsAsRead(cache, 0);
  ExpectAttendsAsRead(cache, 1);
}

TEST_F(TransformedTest, EntriesCanBeEvictedAndTheRestStays) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 100).ok());
  ASSERT_TRUE(StoreAll(cache, Plan(HadamardBasis(kDim), RandomBasis(kDim, kDim, 1, 7), true)).ok());
  const std::vector<int32_t> kept = {0, 3, 64, 65, 99};
  const std::vector<float> keys = Picked(Keys(cache, 1, 0), kept);
  const std::vector<float> values = Picked(Values(cache, 1, 0), kept);
  const std::vector<HeadPlan> heads = {Keep(kept), Keep(kept)};
  ASSERT_TRUE(cache.Reduce(1, heads).ok());
  // Codes behind a gap are coded again: a step more at most.
  EXPECT_TRUE(AllWithin(Keys(cache, 1, 0), keys, 0.5));
  EXPECT_TRUE(AllWithin(Values(cache, 1, 0), values, 0.5));
  ASSERT_TRUE(Feed(cache, 10, 9).ok());
  ExpectAttendsAsRead(cache, 1);
}

TEST_F(TransformedTest, BytesAreWhatThePoolHasGivenOut) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools, DType::kF16);
  ASSERT_TRUE(Feed(cache, 100).ok());
  ASSERT_TRUE(
      StoreAll(cache, Plan(RandomBasis(kDim, 2 * kDim, 2, 1), HadamardBasis(kDim), true)).ok());
  const KvBytes bytes = cache.Bytes();
  // Keys: all coded, 64 numbers; values: 70 of 100.
  EXPECT_EQ(bytes.payload, kLayers * kHeads * (100 * 32 + 70 * 16 + 30 * 64));
  EXPECT_EQ(bytes.projections, kLayers * 4 * (2 * kDim * 2 * kDim + kDim * kDim));
  EXPECT_EQ(bytes.resident() - bytes.projections, pools.of(Tier::kDevice).used_bytes());
}

TEST_F(TransformedTest, RefusesMatricesThatLoseSomething) {
  const auto refusal = [&](const BasisChange& change) {
    const Status status = CheckBasisChange("key matrices", change, kHeads, kDim);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(refusal(HadamardBasis(kDim)), "");
  EXPECT_EQ(refusal(Doubling()), "");
  EXPECT_EQ(refusal(RandomBasis(kDim, 2 * kDim, 3, 1)), "");
  EXPECT_THAT(refusal(HadamardBasis(2 * kDim)),
              HasSubstr("key matrices [1, 64, 64] (heads, rows, columns): right are 1 or 2 heads, "
                        "32 rows, and 32 columns or more"));
  const auto with = [&](size_t at, float value) {
    BasisChange change = HadamardBasis(kDim);
    auto numbers = std::make_shared<std::vector<float>>(*change.there);
    (*numbers)[at] = value;
    change.there = std::move(numbers);
    return change;
  };
  EXPECT_THAT(refusal(with(33, std::numeric_limits<float>::quiet_NaN())),
              HasSubstr("number 33 is nan"));
  EXPECT_THAT(refusal(with(33, 0.5f)), HasSubstr("an orthogonal matrix has that"));
  BasisChange one_way = Doubling();
  one_way.back = one_way.there;
  EXPECT_THAT(refusal(one_way), HasSubstr("row 0 times row 0 is 4, which must be 1 within 0.002"));
}

// The first numbers of each head, in reverse order.
BasisChange FirstNumbers(std::vector<int64_t> kept, int64_t dim, bool constant) {
  BasisChange change;
  change.heads = std::ssize(kept);
  change.dim = dim;
  change.stored = *std::max_element(kept.begin(), kept.end());
  change.constant = constant;
  auto there = std::make_shared<std::vector<float>>();
  for (const int64_t width : kept) {
    std::vector<float> one(static_cast<size_t>(dim * width));
    for (int64_t i = 0; i < width; ++i) one[static_cast<size_t>(i * width + width - 1 - i)] = 1.0f;
    there->insert(there->end(), one.begin(), one.end());
  }
  change.kept = std::move(kept);
  change.there = std::move(there);
  return change;
}

TEST_F(TransformedTest, HeadsMayKeepFewerNumbersEachItsOwn) {
  for (const bool constant : {true, false}) {
    CachePools pools(*ops_);
    KvCache plain = NewCache(pools), cache = NewCache(pools);
    for (KvCache* one : {&plain, &cache}) ASSERT_TRUE(Feed(*one, 100).ok());
    ASSERT_TRUE(StoreAll(cache, Plan(FirstNumbers({5, 20}, kDim, constant),
                                     FirstNumbers({16}, kDim, constant), false))
                    .ok());
    ASSERT_TRUE(Feed(cache, 30, 9).ok());
    ASSERT_TRUE(Feed(plain, 30, 9).ok());
    const auto cut = [](std::vector<float> rows, int64_t width) {
      for (size_t i = 0; i < rows.size(); ++i) {
        if (static_cast<int64_t>(i) % kDim >= width) rows[i] = 0;
      }
      return rows;
    };
    EXPECT_EQ(Keys(cache, 1, 0), cut(Keys(plain, 1, 0), 5));
    EXPECT_EQ(Keys(cache, 1, 1), cut(Keys(plain, 1, 1), 20));
    EXPECT_EQ(Values(cache, 0, 1), cut(Values(plain, 0, 1), 16));
    ExpectAttendsAsRead(cache, 0);
    const KvBytes bytes = cache.Bytes();
    EXPECT_EQ(bytes.payload, kLayers * 130 * 4 * (5 + 20 + 2 * 16));
    const int64_t matrices = kLayers * 4 * kDim * (5 + 20 + 16);
    EXPECT_EQ(bytes.projections, constant ? matrices : 0);
    EXPECT_EQ(bytes.low_rank, constant ? 0 : matrices);
    EXPECT_EQ(bytes.resident() - bytes.projections + plain.Bytes().resident(),
              pools.of(Tier::kDevice).used_bytes());
    const Result<std::string> written = cache.Serialize();
    ASSERT_TRUE(written.ok());
    KvCache again = NewCache(pools);
    ASSERT_TRUE(again.Deserialize(*written).ok());
    EXPECT_EQ(Keys(again, 0, 1), Keys(cache, 0, 1));
    EXPECT_EQ(again.Bytes(), bytes);
  }
  BasisChange change = FirstNumbers({5, 20}, kDim, true);
  const auto refusal = [&] {
    return CheckBasisChange("key matrices", change, kHeads, kDim).error().message;
  };
  change.kept = {5, 21};
  EXPECT_THAT(refusal(), HasSubstr("key matrices: 2 of 2 heads keep 1 to 20 of 32 numbers"));
  change = FirstNumbers({5, 20}, kDim, true);
  auto longer = std::make_shared<std::vector<float>>(*change.there);
  (*longer)[4] = 3.0f;
  change.there = std::move(longer);
  EXPECT_THAT(refusal(), HasSubstr("head 0: column 4 times column 4 is 9"));
}

}  // namespace
}  // namespace kvgauge
