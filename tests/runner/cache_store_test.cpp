// SPDX-License-Identifier: Apache-2.0
// Layers that are stored otherwise: coded, unrotated, as latents, on other tiers.
#include <gmock/gmock.h>

#include <functional>

#include "methods/layouts/coded.h"
#include "methods/layouts/joint_latent.h"
#include "methods/layouts/latent.h"
#include "methods/layouts/mla_latent.h"
#include "methods/layouts/plain.h"
#include "runner/cache_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

KvCodec Affine(int bits, CodeAxis axis, int64_t group) {
  KvCodec codec;
  codec.kind = KvCodecKind::kAffine;
  codec.bits = bits;
  codec.axis = axis;
  codec.group = group;
  return codec;
}

Coded Kivi(int bits = 2) {
  Coded plan;
  plan.keys = Affine(bits, CodeAxis::kChannel, 32);
  plan.values = Affine(bits, CodeAxis::kToken, 32);
  plan.seal_keys = {.unit = 128, .keep_recent = 0};
  plan.seal_values = {.unit = 1, .keep_recent = 128};
  return plan;
}

Status StoreAll(KvCache& cache, const StorePlan& plan) {
  for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
    KVG_TRY(cache.Store(layer, plan));
  }
  return {};
}

class StoreTest : public CacheTest {
 protected:
  void ExpectDeclaredIsAllocated(CachePools& pools, const KvCache& cache) {
    int64_t used = 0;
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
      used += pools.of(tier).used_bytes();
    }
    KvBytes bytes = cache.Bytes();
    EXPECT_GE(bytes.slack, 0);
    EXPECT_EQ(bytes.resident() - bytes.projections - bytes.codebooks, used);
  }
};

TEST_F(StoreTest, KiviSealsKeysByBlocksAndValuesBehindAWindow) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools, DType::kF16);
  ASSERT_TRUE(Feed(cache, 300).ok());
  ASSERT_TRUE(StoreAll(cache, PlanOf(Kivi())).ok());
  const auto expect_coded = [&](int64_t keys, int64_t values, int64_t length) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      for (const KvHead& head : cache.Layer(layer)) {
        ASSERT_EQ(head.count, 1);
        EXPECT_EQ(head.segments[0].length, length);
        EXPECT_EQ(head.segments[0].keys.entries, keys);
        EXPECT_EQ(head.segments[0].values.entries, values);
      }
    }
    KvBytes want;
    want += CodedBytes(cache.Layer(0)[0].segments[0].keys.codec[0], keys);
    want += CodedBytes(cache.Layer(0)[0].segments[0].values.codec[0], values);
    want.payload += (2 * length - keys - values) * kDim * 2;
    const KvBytes bytes = cache.Bytes();
    EXPECT_EQ(bytes.payload, want.payload * kLayers * kHeads);
    EXPECT_EQ(bytes.scales, want.scales * kLayers * kHeads);
    ExpectDeclaredIsAllocated(pools, cache);
  };
  expect_coded(256, 172, 300);
  ExpectAttendsAsRead(cache, 1);
  for (int i = 0; i < 84; ++i) {
    ASSERT_TRUE(Feed(cache, 1).ok());
    ASSERT_TRUE(cache.Seal().ok());
  }
  expect_coded(384, 256, 384);
  ExpectAttendsAsRead(cache, 0);
  ASSERT_TRUE(Feed(cache, 1).ok());
  ExpectAttendsAsRead(cache, 0);
}

// Sealed as it comes or at once, fed by rows or in chunks: the same codes.
TEST_F(StoreTest, SealingStepByStepGivesTheSameCodes) {
  CachePools pools(*ops_);
  KvCache late = NewCache(pools), early = NewCache(pools);
  Coded plan = Kivi(4);
  plan.sinks = 5;
  ASSERT_TRUE(StoreAll(early, PlanOf(plan)).ok());
  ASSERT_TRUE(Feed(late, 301).ok());
  for (const int64_t rows : {3, 1, 1, 60, 200, 1, 35}) {
    ASSERT_TRUE(Feed(early, rows).ok());
    ASSERT_TRUE(early.Seal().ok());
  }
  ASSERT_TRUE(StoreAll(late, PlanOf(plan)).ok());
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    for (int64_t h = 0; h < kHeads; ++h) {
      EXPECT_TRUE(SameBits(Keys(early, layer, h), Keys(late, layer, h)));
      EXPECT_TRUE(SameBits(Values(early, layer, h), Values(late, layer, h)));
    }
    ASSERT_EQ(early.Layer(layer)[0].count, 2);
    EXPECT_EQ(early.Layer(layer)[0].segments[0].length, 5);
  }
  EXPECT_EQ(early.Bytes(), late.Bytes());
  // Sinks are exact.
  const std::vector<float> raw = Rows(0, 0, 5, 1), keys = Keys(late, 0, 0);
  EXPECT_EQ(keys[4 * kDim], raw[4 * kHeads * kDim]);
  ExpectAttendsAsRead(late, 1);
}

// Behind the units that are sealed first, in a part of their own.
TEST_F(StoreTest, WhatComesLaterMayHaveOtherCodes) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools, DType::kF16);
  Coded plan;
  plan.keys = Affine(2, CodeAxis::kChannel, 64);
  plan.keys.range_pages = 0;
  plan.keys.rank = 4;
  plan.values = Affine(2, CodeAxis::kToken, 32);
  plan.seal_keys = plan.seal_values = {.unit = 64, .keep_recent = 0};
  plan.later = LaterCodes{plan.keys, plan.values, {.unit = 16}, {.unit = 16}};
  plan.later->keys = Affine(4, CodeAxis::kChannel, 16);
  ASSERT_TRUE(Feed(cache, 200).ok());
  ASSERT_TRUE(StoreAll(cache, PlanOf(plan)).ok());
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(Feed(cache, 1).ok());
    ASSERT_TRUE(cache.Seal().ok());
  }
  for (const KvHead& head : cache.Layer(1)) {
    ASSERT_EQ(head.count, 2);
    EXPECT_EQ(head.segments[0].length, 192);
    EXPECT_EQ(head.segments[0].keys.entries + head.segments[0].values.entries, 2 * 192);
    EXPECT_EQ(head.segments[0].keys.codec->rank, 4);
    EXPECT_EQ(head.segments[1].length, 68);
    EXPECT_EQ(head.segments[1].keys.entries, 64);
    EXPECT_EQ(head.segments[1].keys.codec->bits, 4);
    EXPECT_EQ(head.segments[1].keys.codec->rank, 0);
  }
  ExpectDeclaredIsAllocated(pools, cache);
  ExpectAttendsAsRead(cache, 1);
  CachePools other_pools(*ops_);
  KvCache again = NewCache(other_pools, DType::kF16);
  const std::string bytes = *cache.Serialize();
  ASSERT_TRUE(again.Deserialize(bytes).ok());
  EXPECT_TRUE(SameBits(Keys(again, 1, 1), Keys(cache, 1, 1)));
  EXPECT_EQ(*again.Serialize(), bytes);
  // What was sealed first may lose entries, too; its units become whole again.
  ASSERT_TRUE(cache.Truncate(150).ok());
  EXPECT_EQ(cache.Layer(1)[0].segments[0].keys.entries, 128);
  EXPECT_EQ(cache.Layer(1)[0].segments[1].length, 0);
  ASSERT_TRUE(Feed(cache, 20).ok());
  ASSERT_TRUE(cache.Seal().ok());
  EXPECT_EQ(cache.Layer(1)[0].segments[1].keys.entries, 16);
  ExpectDeclaredIsAllocated(pools, cache);
  ExpectAttendsAsRead(cache, 0);
}

TEST_F(StoreTest, IdentityStoreChangesNoBit) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools, DType::kBF16);
  ASSERT_TRUE(Feed(cache, 150).ok());
  const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3);
  const std::vector<float> want = Attend(cache, 0, q);
  const KvBytes bytes = cache.Bytes();
  ASSERT_TRUE(StoreAll(cache, StorePlan()).ok());
  EXPECT_EQ(cache.Bytes(), bytes);
  EXPECT_TRUE(SameBits(Attend(cache, 0, q), want));
}

TEST_F(StoreTest, CodecsOfEveryKind) {
  std::vector<float> levels = {-1, -0.5f, 0.25f, 1}, low(kDim, -2), high(kDim, 2);
  KvCodec codebook;
  codebook.kind = KvCodecKind::kCodebook;
  codebook.bits = 2;
  codebook.axis = CodeAxis::kChannel;
  codebook.levels = View(levels, {4});
  codebook.channel_low = View(low, {kDim});
  codebook.channel_high = View(high, {kDim});
  KvCodec q8;
  q8.kind = KvCodecKind::kQ8_0;
  KvCodec fp8;
  fp8.kind = KvCodecKind::kFp8E4M3;
  KvCodec gear = Affine(2, CodeAxis::kChannel, 64);
  gear.outlier_share = 0.05;
  gear.rank = 2;
  for (const KvCodec& codec : {codebook, q8, fp8, gear}) {
    CachePools pools(*ops_);
    KvCache cache = NewCache(pools, DType::kF16);
    ASSERT_TRUE(Feed(cache, 200).ok());
    Coded plan;
    plan.keys = plan.values = codec;
    const int64_t unit = SealUnit(codec);
    plan.seal_keys = plan.seal_values = {.unit = unit, .keep_recent = 7};
    plan.sinks = 3;
    ASSERT_TRUE(StoreAll(cache, PlanOf(plan)).ok());
    const int64_t coded = (200 - 3 - 7) / unit * unit;
    EXPECT_EQ(cache.Layer(0)[1].segments[1].keys.entries, coded);
    ExpectAttendsAsRead(cache, 0);
    ExpectDeclaredIsAllocated(pools, cache);
    const KvBytes bytes = cache.Bytes();
    EXPECT_EQ(bytes.outliers > 0, codec.has_outliers());
    const int64_t streams = kLayers * kHeads * 2;
    EXPECT_EQ(bytes.low_rank, streams * (coded + kDim) * codec.rank * 2);
    EXPECT_EQ(bytes.codebooks, codec.levels.empty() ? 0 : kLayers * 2 * 4 * (4 + 2 * kDim));
    // More, then evict: the rest attends as it is read.
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(Feed(cache, 50).ok());
      ASSERT_TRUE(cache.Seal().ok());
    }
    ExpectAttendsAsRead(cache, 1);
    ExpectDeclaredIsAllocated(pools, cache);
    KvCache fork = cache.Fork();
    std::vector<int32_t> kept;
    for (int32_t i = 0; i < 350; ++i) {
      if (i < 70 || i % 3 != 0) kept.push_back(i);
    }
    const std::vector<float> before = Picked(Keys(fork, 1, 0), kept);
    const std::vector<HeadPlan> heads = {Keep(kept), Keep(kept)};
    ASSERT_TRUE(fork.Reduce(1, heads).ok());
    ExpectAttendsAsRead(fork, 1);
    // The first sealed page was not touched.
    std::vector<float> after = Keys(fork, 1, 0), first = before;
    first.resize(67 * kDim);
    after.resize(67 * kDim);
    EXPECT_TRUE(SameBits(after, first));
    ASSERT_TRUE(cache.Truncate(130).ok());
    EXPECT_EQ(cache.length(0, 0), 130);
    ExpectAttendsAsRead(cache, 0);
    cache = fork.Fork();
    fork = NewCache(pools);
    ExpectDeclaredIsAllocated(pools, cache);
  }
}

// Ranges found in the keys themselves, for each head and channel; the plan's memory may go.
TEST_F(StoreTest, KeyRangesOfEachHead) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 128).ok());
  const std::vector<float> want = Keys(cache, 0, 1);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    std::vector<float> levels(16), low(kHeads * kDim, 1e9f), high(kHeads * kDim, -1e9f);
    for (int i = 0; i < 16; ++i)
      levels[static_cast<size_t>(i)] = -1 + 2 * static_cast<float>(i) / 15;
    for (int64_t h = 0; h < kHeads; ++h) {
      const std::vector<float> keys = Keys(cache, layer, h);
      for (size_t i = 0; i < keys.size(); ++i) {
        const size_t c = static_cast<size_t>(h * kDim) + i % kDim;
        low[c] = std::min(low[c], keys[i]);
        high[c] = std::max(high[c], keys[i]);
      }
    }
    Coded plan;
    plan.keys.kind = KvCodecKind::kCodebook;
    plan.keys.bits = 4;
    plan.keys.axis = CodeAxis::kChannel;
    plan.keys.levels = View(levels, {16});
    plan.ranges.low = View(low, {kHeads, kDim});
    plan.ranges.high = View(high, {kHeads, kDim});
    plan.seal_keys = {.unit = 64, .keep_recent = 0};
    ASSERT_TRUE(cache.Store(layer, PlanOf(plan)).ok());
  }
  const std::vector<float> got = Keys(cache, 0, 1);
  // Half a step of each channel's own range.
  for (int64_t d = 0; d < kDim; ++d) {
    float least = 1e9f, most = -1e9f;
    for (size_t i = static_cast<size_t>(d); i < want.size(); i += kDim) {
      least = std::min(least, want[i]);
      most = std::max(most, want[i]);
    }
    for (size_t i = static_cast<size_t>(d); i < want.size(); i += kDim) {
      ASSERT_NEAR(got[i], want[i], (most - least) / 30 * 1.01);
    }
  }
  ExpectAttendsAsRead(cache, 0);
  EXPECT_EQ(cache.Bytes(0).scales, 2 * kHeads * kDim * 4);
  EXPECT_EQ(cache.Bytes(0).codebooks, 16 * 4);
}

TEST_F(StoreTest, SealedForksDoNotSeeEachOther) {
  CachePools pools(*ops_);
  Coded plan;
  plan.keys = plan.values = Affine(4, CodeAxis::kToken, 32);
  KvCache root = NewCache(pools);
  ASSERT_TRUE(Feed(root, 100).ok());
  ASSERT_TRUE(StoreAll(root, PlanOf(plan)).ok());
  const std::vector<float> keys = Keys(root, 0, 1);
  KvCache fork = root.Fork();
  ASSERT_TRUE(Feed(fork, 9, 5).ok());
  ASSERT_TRUE(fork.Seal().ok());
  ASSERT_TRUE(Feed(root, 3, 6).ok());
  ASSERT_TRUE(root.Seal().ok());
  for (const KvCache* cache : {&root, &fork}) {
    std::vector<float> got = Keys(*cache, 0, 1);
    got.resize(keys.size());
    EXPECT_TRUE(SameBits(got, keys));
  }
  EXPECT_FALSE(SameBits(Keys(root, 0, 1), Keys(fork, 0, 1)));
}

// The same keys, rotated when they are written or when they are read.
TEST_F(StoreTest, RawKeysAttendAsRotatedOnes) {
  CachePools pools(*ops_);
  KvCache turned = NewCache(pools);
  ASSERT_TRUE(Feed(turned, 130).ok());
  KvCache raw = turned.Fork();
  const StorePlan plan = PlanOf(Plain(), {.raw = true});
  ASSERT_TRUE(StoreAll(raw, plan).ok());
  EXPECT_TRUE(raw.raw_keys(0));
  ASSERT_NE(raw.rope(0), nullptr);
  EXPECT_EQ(turned.rope(0), nullptr);
  EXPECT_EQ(raw.Bytes(), turned.Bytes());
  EXPECT_TRUE(AllWithin(Keys(raw, 0, 1), Keys(turned, 0, 1), 1e-4));
  const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3, 0.3f);
  EXPECT_TRUE(AllWithin(Attend(raw, 0, q), Attend(turned, 0, q), 1e-4));
  std::vector<float> a(130 * kDim), b(130 * kDim);
  raw.ReadRawKeys(0, 1, 0, View(a, {130, kDim}));
  turned.ReadRawKeys(0, 1, 0, View(b, {130, kDim}));
  EXPECT_TRUE(SameBits(a, b));

  // Kept entries still turn by where they came from.
  std::vector<int32_t> odd;
  for (int32_t i = 1; i < 130; i += 2) odd.push_back(i);
  const std::vector<HeadPlan> heads = {Keep(odd), Keep(odd)};
  ASSERT_TRUE(raw.Reduce(0, heads).ok());
  ASSERT_TRUE(turned.Reduce(0, heads).ok());
  EXPECT_TRUE(AllWithin(Attend(raw, 0, q), Attend(turned, 0, q), 1e-4));
  EXPECT_EQ(raw.Bytes(0), turned.Bytes(0));
  ExpectAttendsAsRead(raw, 0);
}

// So that their sequences attend in one call.
TEST_F(StoreTest, CachesOfOneModelTurnByTheSameTables) {
  CachePools pools(*ops_), others(*ops_);
  const StorePlan plan = PlanOf(Plain(), {.raw = true});
  const auto stored = [&](CachePools& of) {
    KvCache cache = NewCache(of);
    EXPECT_TRUE(Feed(cache, 70).ok());
    EXPECT_TRUE(StoreAll(cache, plan).ok());
    return cache;
  };
  const KvCache first = stored(pools), second = stored(pools), other = stored(others);
  ASSERT_NE(first.rope(0), nullptr);
  EXPECT_EQ(first.rope(0), second.rope(0));
  EXPECT_NE(first.rope(0), other.rope(0));
  // Other angles, other tables.
  KvCacheOptions options = Options();
  for (double& inverse : options.frequencies.inverse) inverse /= 2;
  KvCache stretched(CacheConfig(kLayers, kQueryHeads, kHeads, kDim), options, pools);
  ASSERT_TRUE(Feed(stretched, 70).ok());
  ASSERT_TRUE(StoreAll(stretched, plan).ok());
  EXPECT_NE(stretched.rope(0), first.rope(0));
}

// Raw keys, clipped ones and those turned back take the base of their layer.
TEST_F(StoreTest, LocalLayersTurnByTheirOwnRope) {
  ModelConfig config = CacheConfig(kLayers, kQueryHeads, kHeads, kDim);
  config.local_rope = config.rope;
  config.layers[0].local_rope = true;
  KvCacheOptions options = Options();
  options.local_frequencies = options.frequencies;
  for (double& inverse : options.local_frequencies.inverse) inverse /= 3;
  KvCacheOptions all_local = Options();
  all_local.frequencies = options.local_frequencies;
  for (const PositionPolicy policy :
       {PositionPolicy::kOriginal, PositionPolicy::kSlot, PositionPolicy::kClipped}) {
    CachePools pools(*ops_);
    const StorePlan plan = PlanOf(Plain(), {.raw = true, .position = policy, .position_limit = 40});
    std::vector<KvCache> caches;
    caches.emplace_back(config, options, pools);
    caches.emplace_back(CacheConfig(kLayers, kQueryHeads, kHeads, kDim), all_local, pools);
    caches.push_back(NewCache(pools));
    for (KvCache& cache : caches) {
      ASSERT_TRUE(Feed(cache, 70).ok());
      ASSERT_TRUE(StoreAll(cache, plan).ok());
      ASSERT_TRUE(Feed(cache, 3).ok());
    }
    const KvCache& both = caches[0];
    EXPECT_EQ(both.frequencies(0).inverse, options.local_frequencies.inverse);
    EXPECT_EQ(both.frequencies(1).inverse, options.frequencies.inverse);
    EXPECT_EQ(both.rope(0), caches[1].rope(0));
    EXPECT_EQ(both.rope(1), caches[2].rope(1));
    EXPECT_NE(both.rope(0), both.rope(1));
    const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3, 0.3f);
    for (const int64_t layer : {0, 1}) {
      const KvCache& alike = caches[layer == 0 ? 1 : 2];
      EXPECT_TRUE(SameBits(Keys(both, layer, 1), Keys(alike, layer, 1)));
      EXPECT_TRUE(SameBits(Attend(both, layer, q), Attend(alike, layer, q)));
      std::vector<float> a(73 * kDim), b(73 * kDim);
      both.ReadRawKeys(layer, 1, 0, View(a, {73, kDim}));
      alike.ReadRawKeys(layer, 1, 0, View(b, {73, kDim}));
      EXPECT_TRUE(SameBits(a, b));
    }
    EXPECT_FALSE(SameBits(Keys(both, 0, 1), Keys(caches[2], 0, 1)));
    const Result<std::string> bytes = both.Serialize();
    ASSERT_TRUE(bytes.ok()) << bytes.error().message;
    KvCache again(config, options, pools);
    ASSERT_TRUE(again.Deserialize(*bytes).ok());
    EXPECT_TRUE(SameBits(Attend(again, 0, q), Attend(both, 0, q)));
  }
}

TEST_F(StoreTest, SlotAndClippedPositions) {
  const RopeFrequencies frequencies = Options().frequencies;
  for (const PositionPolicy policy : {PositionPolicy::kSlot, PositionPolicy::kClipped}) {
    CachePools pools(*ops_);
    KvCache cache = NewCache(pools);
    const KeyTurn key_turn = {.raw = true, .position = policy, .position_limit = 40};
    ASSERT_TRUE(StoreAll(cache, PlanOf(Plain(), key_turn)).ok());
    ASSERT_TRUE(Feed(cache, 100).ok());
    std::vector<int32_t> kept;
    for (int32_t i = 0; i < 100; ++i) {
      if (i < 4 || i > 50) kept.push_back(i);
    }
    const std::vector<HeadPlan> heads = {Keep(kept), Keep(kept)};
    ASSERT_TRUE(cache.Reduce(0, heads).ok());
    ASSERT_TRUE(Feed(cache, 1).ok());
    const int64_t n = cache.length(0, 1);
    ASSERT_EQ(n, 54);
    EXPECT_EQ(cache.slot_positions(0), policy == PositionPolicy::kSlot);
    EXPECT_EQ(cache.slot_of(0, 1), 53);
    std::vector<float> raw(static_cast<size_t>(n * kDim));
    cache.ReadRawKeys(0, 1, 0, View(raw, {n, kDim}));
    const std::vector<int32_t> positions = cache.Positions(0, 1);
    EXPECT_EQ(positions[53], 100);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t turn = policy == PositionPolicy::kSlot
                               ? i
                               : std::max<int64_t>(positions[static_cast<size_t>(i)], 60);
      float* x = &raw[static_cast<size_t>(i * kDim)];
      for (int64_t p = 0; p < kDim / 2; ++p) {
        const double angle =
            static_cast<double>(turn) * frequencies.inverse[static_cast<size_t>(p)];
        const double a = x[p], b = x[p + kDim / 2];
        x[p] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
        x[p + kDim / 2] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
      }
    }
    EXPECT_TRUE(AllWithin(Keys(cache, 0, 1), raw, 1e-4));
    ExpectAttendsAsRead(cache, 0);
    // Clipped angles follow the query, so each entry has its own and they are counted.
    EXPECT_EQ(cache.Bytes(0).indices, kHeads * n * (policy == PositionPolicy::kClipped ? 8 : 4));
    ExpectDeclaredIsAllocated(pools, cache);
  }
}

TEST_F(StoreTest, RawKeysCoded) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  Coded plan = Kivi(4);
  plan.sinks = 4;
  ASSERT_TRUE(Feed(cache, 300).ok());
  ASSERT_TRUE(StoreAll(cache, PlanOf(plan, {.raw = true})).ok());
  EXPECT_EQ(cache.Layer(0)[0].segments[1].keys.entries, 256);
  ExpectAttendsAsRead(cache, 0);
}

// Orthonormal columns from a rotation of the axes by QR of random numbers.
KvBasis MakeBasis(Ops& ops, int64_t layer, KvSide side, int64_t first_head, int64_t heads,
                  int64_t dim, int64_t rank) {
  KvBasis basis;
  basis.layer = layer;
  basis.side = side;
  basis.first_head = first_head;
  basis.heads = heads;
  const std::vector<float> random =
      RandomValues(heads * dim * rank, static_cast<uint64_t>(77 + first_head + 10 * layer));
  basis.memory = ops.memory->Allocate((heads * dim + rank) * rank * 4);
  const Tensor both = basis.memory.As(DType::kF32, {heads * dim + rank, rank});
  basis.basis = both.Slice(0, heads * dim);
  ops.algebra->Qr(View(random, {heads * dim, rank}), basis.basis,
                  both.Slice(heads * dim, heads * dim + rank));
  return basis;
}

TEST_F(StoreTest, LatentsOfFullRankAreExactAndSharedOnesCountOnce) {
  CachePools pools(*ops_);
  KvBases bases;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    for (int64_t h = 0; h < kHeads; ++h) {
      bases.push_back(MakeBasis(*ops_, layer, KvSide::kKeys, h, 1, kDim, kDim));
    }
    // Values of both heads in one stream.
    bases.push_back(MakeBasis(*ops_, layer, KvSide::kValues, 0, 2, kDim, 2 * kDim));
  }
  KvCacheOptions options = Options();
  options.bases = &bases;
  KvCache plain(CacheConfig(kLayers, kQueryHeads, kHeads, kDim), options, pools);
  ASSERT_TRUE(Feed(plain, 90).ok());
  KvCache latent = plain.Fork();
  ASSERT_TRUE(StoreAll(latent, PlanOf(Latent())).ok());
  EXPECT_TRUE(latent.raw_keys(1));
  const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3, 0.3f);
  EXPECT_TRUE(AllWithin(Keys(latent, 1, 1), Keys(plain, 1, 1), 1e-3));
  EXPECT_TRUE(AllWithin(Values(latent, 1, 1), Values(plain, 1, 1), 1e-3));
  EXPECT_TRUE(AllWithin(Attend(latent, 1, q), Attend(plain, 1, q), 1e-3));
  // What is written later goes the same way; raw keys this time.
  ASSERT_TRUE(Feed(latent, 3).ok());
  ASSERT_TRUE(latent.Seal().ok());
  ExpectAttendsAsRead(latent, 0, 1e-3);
  KvBytes bytes = latent.Bytes();
  EXPECT_EQ(bytes.payload, 93 * kLayers * (2 * kDim + 2 * kDim) * 4);
  EXPECT_EQ(bytes.projections, kLayers * 4 * (2 * kDim * kDim + 4 * kDim * kDim));
  // Heads that share a stream keep the same entries, or the plan is refused.
  const std::vector<int32_t> one = {1, 5, 70}, two = {1, 6, 70};
  std::vector<HeadPlan> heads = {Keep(one), Keep(two)};
  EXPECT_THAT(latent.Reduce(1, heads).error().message, HasSubstr("it shares latents with head 0"));
  heads[1] = Keep(one);
  const std::vector<float> want = Picked(Keys(latent, 1, 1), one);
  ASSERT_TRUE(latent.Reduce(1, heads).ok());
  EXPECT_TRUE(SameBits(Keys(latent, 1, 1), want));
  ExpectAttendsAsRead(latent, 1, 1e-3);
}

// Keys and values of all heads in one stream, whose rank may be that of both together.
TEST_F(StoreTest, JointLatentsOfFullRankAreExactAndTakeOneStream) {
  CachePools pools(*ops_);
  constexpr int64_t kRows = kHeads * kDim, kRank = 2 * kRows;
  KvBases bases;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const KvBasis both = MakeBasis(*ops_, layer, KvSide::kKeys, 0, 2 * kHeads, kDim, kRank);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      KvBasis& own = bases.emplace_back();
      own.layer = layer;
      own.side = side;
      own.heads = kHeads;
      own.memory = ops_->memory->Allocate(kRows * kRank * 4);
      own.basis = own.memory.As(DType::kF32, {kRows, kRank});
      const int64_t begin = side == KvSide::kKeys ? 0 : kRows;
      ops_->memory->Copy(both.basis.Slice(begin, begin + kRows), own.basis);
    }
  }
  KvCacheOptions options = Options();
  EXPECT_THAT(NewCache(pools).Store(0, PlanOf(JointLatent())).error().message,
              HasSubstr("prepare.joint_svd does that"));
  options.bases = &bases;
  KvCache plain(CacheConfig(kLayers, kQueryHeads, kHeads, kDim), options, pools);
  ASSERT_TRUE(Feed(plain, 90).ok());
  KvCache joint = plain.Fork();
  ASSERT_TRUE(StoreAll(joint, PlanOf(JointLatent())).ok());
  const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3, 0.3f);
  EXPECT_TRUE(AllWithin(Keys(joint, 1, 1), Keys(plain, 1, 1), 1e-3));
  EXPECT_TRUE(AllWithin(Values(joint, 1, 0), Values(plain, 1, 0), 1e-3));
  EXPECT_TRUE(AllWithin(Attend(joint, 1, q), Attend(plain, 1, q), 1e-3));
  const std::vector<float> first = Values(joint, 0, 1);
  ASSERT_TRUE(Feed(joint, 3).ok());
  const std::vector<float> after = Values(joint, 0, 1);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), after.begin()));
  ASSERT_TRUE(Feed(plain, 3).ok());
  EXPECT_TRUE(AllWithin(after, Values(plain, 0, 1), 1e-3));
  ExpectAttendsAsRead(joint, 0, 1e-3);
  const KvBytes bytes = joint.Bytes();
  EXPECT_EQ(bytes.payload, 93 * kLayers * kRank * 4);
  EXPECT_EQ(bytes.projections, kLayers * 2 * kRows * kRank * 4);
  const Result<std::string> written = joint.Serialize();
  ASSERT_TRUE(written.ok());
  KvCache again(CacheConfig(kLayers, kQueryHeads, kHeads, kDim), options, pools);
  ASSERT_TRUE(again.Deserialize(*written).ok());
  EXPECT_EQ(Values(again, 0, 1), after);
}

TEST_F(StoreTest, CodedLatents) {
  CachePools pools(*ops_);
  KvBases bases;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    bases.push_back(MakeBasis(*ops_, layer, KvSide::kKeys, 0, 2, kDim, 32));
    for (int64_t h = 0; h < kHeads; ++h) {
      bases.push_back(MakeBasis(*ops_, layer, KvSide::kValues, h, 1, kDim, 16));
    }
  }
  KvCacheOptions options = Options(DType::kF16);
  options.bases = &bases;
  KvCache cache(CacheConfig(kLayers, kQueryHeads, kHeads, kDim), options, pools);
  ASSERT_TRUE(Feed(cache, 150).ok());
  Latent plan;
  plan.keys = Affine(4, CodeAxis::kToken, 16);
  plan.values = Affine(3, CodeAxis::kToken, 16);
  plan.sinks = 2;
  ASSERT_TRUE(StoreAll(cache, PlanOf(plan)).ok());
  ASSERT_TRUE(Feed(cache, 5).ok());
  ASSERT_TRUE(cache.Seal().ok());
  ExpectAttendsAsRead(cache, 0, 2e-3);
  ExpectDeclaredIsAllocated(pools, cache);
}

TEST_F(StoreTest, OtherTiersHoldTheBody) {
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    CachePools::Limits limits;
    limits.directory = ::testing::TempDir();
    CachePools pools(*ops_, limits);
    KvCache cache = NewCache(pools);
    ASSERT_TRUE(Feed(cache, 100).ok());
    const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3, 0.3f);
    const std::vector<float> want = Attend(cache, 0, q);
    Coded plan;
    plan.tier = tier;
    plan.sinks = 64;
    ASSERT_TRUE(StoreAll(cache, PlanOf(plan)).ok());
    EXPECT_EQ(pools.of(Tier::kDevice).used_bytes(), kLayers * kHeads * PageBytes(DType::kF32));
    EXPECT_EQ(pools.of(tier).used_bytes(), kLayers * kHeads * PageBytes(DType::kF32));
    EXPECT_TRUE(AllWithin(Attend(cache, 0, q), want, 1e-5));
    ASSERT_TRUE(Feed(cache, 40).ok());
    EXPECT_EQ(pools.of(tier).used_bytes(), 2 * kLayers * kHeads * PageBytes(DType::kF32));
    ExpectDeclaredIsAllocated(pools, cache);
  }
}

// Bytes of some of a head's entries, whatever parts they lie in: codes, scales and floats.
TEST_F(StoreTest, BytesOfEntries) {
  CachePools pools(*ops_);
  KvCache plain = NewCache(pools, DType::kBF16);
  ASSERT_TRUE(Feed(plain, 100).ok());
  EXPECT_EQ(plain.EntryBytes(1, 1, KvSide::kKeys, 10, 30), 20 * kDim * 2);
  KvCache cache = plain.Fork();
  Coded plan;
  plan.sinks = 4;
  plan.keys = Affine(4, CodeAxis::kToken, kDim);
  plan.seal_keys = {.unit = 1, .keep_recent = 16};
  ASSERT_TRUE(StoreAll(cache, PlanOf(plan)).ok());
  ASSERT_TRUE(cache.Seal().ok());
  // 4 sinks, 80 in 4 bits with a scale and a zero of 2 bytes, 16 that wait.
  constexpr int64_t kCoded = kDim / 2 + 4;
  EXPECT_EQ(cache.EntryBytes(0, 0, KvSide::kKeys, 4, 84), 80 * kCoded);
  EXPECT_EQ(cache.EntryBytes(0, 0, KvSide::kKeys, 2, 90), 80 * kCoded + 8 * kDim * 2);
  EXPECT_EQ(cache.EntryBytes(0, 1, KvSide::kValues, 2, 90), 88 * kDim * 2);
  EXPECT_EQ(cache.EntryBytes(0, 1, KvSide::kValues, 90, 90), 0);
  const KvBytes all = cache.Bytes(0);
  double sum = 0;
  for (int64_t head = 0; head < kHeads; ++head) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      sum += cache.EntryBytes(0, head, side, 0, 100);
    }
  }
  EXPECT_EQ(sum, static_cast<double>(all.logical()));
}

// Words count over all entries of a head, whatever parts they lie in.
TEST_F(StoreTest, ReadingSomeEntriesOfParts) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 200).ok());
  KvCache parts = cache.Fork();
  Coded plan;
  plan.sinks = 37;
  plan.tier = Tier::kHost;
  ASSERT_TRUE(StoreAll(parts, PlanOf(plan)).ok());
  std::vector<int64_t> words(static_cast<size_t>(kQueryHeads * 4));
  Rng rng(3, 0);
  for (int64_t g = 0; g < kQueryHeads; ++g) {
    for (int64_t i = 0; i < 200; ++i) {
      if (rng.NextBelow(3) == 0)
        words[static_cast<size_t>(g * 4 + i / 64)] |= int64_t{1} << (i % 64);
    }
  }
  const Tensor read(words.data(), DType::kI64, {kQueryHeads, 4});
  cache.SetRead(0, read);
  parts.SetRead(0, read);
  const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3, 0.3f);
  const std::vector<float> some = Attend(parts, 0, q);
  EXPECT_TRUE(AllWithin(some, Attend(cache, 0, q), 1e-5));
  parts.SetRead(0, {});
  EXPECT_FALSE(AllWithin(Attend(parts, 0, q), some, 1e-4));
}

TEST_F(StoreTest, PlansThatDoNotFitAreNamed) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 10).ok());
  const auto refusal = [&](const StorePlan& plan) {
    const Status status = cache.Store(1, plan);
    return status.ok() ? "stored" : status.error().message;
  };
  const auto message = [&](const std::function<void(Coded&)>& spoil) {
    Coded plan = Kivi();
    spoil(plan);
    return refusal(PlanOf(plan));
  };
  EXPECT_THAT(message([](Coded& p) { p.keys.bits = 5; }),
              HasSubstr("layer 1: codec of keys: bits 5"));
  EXPECT_THAT(message([](Coded& p) { p.seal_keys.unit = 48; }),
              HasSubstr("seal rule of keys: 48 entries at a time, 0 kept; the codec seals "
                        "multiples of 32"));
  EXPECT_THAT(refusal(PlanOf(Latent())), HasSubstr("no basis was written"));
  EXPECT_THAT(refusal(PlanOf(MlaLatent())), HasSubstr("mla_latent"));
  EXPECT_THAT(refusal(PlanOf(Plain(), {.position_limit = -2})), HasSubstr("position_limit -2"));
  EXPECT_THAT(message([](Coded& p) { p.sinks = -1; }), HasSubstr("sinks -1"));
  EXPECT_EQ(message([](Coded&) {}), "stored");
}

}  // namespace
}  // namespace kvgauge
