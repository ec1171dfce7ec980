// SPDX-License-Identifier: Apache-2.0
// Caches that are stored otherwise than plainly, written and read back.
#include <gmock/gmock.h>

#include <string>

#include "runner/cache_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class SerialTest : public CacheTest {
 protected:
  static KvCodec Affine(CodeAxis axis) {
    KvCodec codec;
    codec.kind = KvCodecKind::kAffine;
    codec.bits = 3;
    codec.axis = axis;
    codec.group = 32;
    return codec;
  }

  // One of each kind of thing a stored layer can hold; tables live in the fixture.
  std::vector<StorePlan> Plans() {
    std::vector<StorePlan> plans(5);
    plans[0].keys = Affine(CodeAxis::kChannel);
    plans[0].values = Affine(CodeAxis::kToken);
    plans[0].seal_keys = {.unit = 32, .keep_recent = 0};
    plans[0].seal_values = {.unit = 1, .keep_recent = 40};
    plans[0].tier = Tier::kHost;
    // Ranges, levels and outliers; keys that turn when they are read.
    plans[1].keys.kind = plans[1].values.kind = KvCodecKind::kCodebook;
    plans[1].keys.bits = plans[1].values.bits = 2;
    plans[1].keys.levels = plans[1].values.levels = View(levels_, {4});
    plans[1].keys.axis = CodeAxis::kChannel;
    plans[1].values.group = kDim;
    plans[1].key_low = View(low_, {kHeads, kDim});
    plans[1].key_high = View(high_, {kHeads, kDim});
    plans[1].seal_keys.unit = 64;
    plans[1].sinks = 3;
    plans[1].raw_keys = true;
    // A correction and its bases.
    plans[2].keys = Affine(CodeAxis::kChannel);
    plans[2].keys.outlier_share = 0.05;
    plans[2].keys.rank = 2;
    plans[2].seal_keys = {.unit = 64, .keep_recent = 7};
    plans[3].raw_keys = true;
    plans[3].position = PositionPolicy::kClipped;
    plans[3].position_limit = 30;
    // Keys of few numbers.
    plans[4].narrow_dim = kNarrow;
    plans[4].wide_recent = 33;
    plans[4].key_channels = View(channels_, {kHeads, kNarrow});
    return plans;
  }

  Status Fill(KvCache& cache, const StorePlan& plan) {
    KVG_TRY(Feed(cache, 150));
    for (int64_t layer = 0; layer < kLayers; ++layer) KVG_TRY(cache.Store(layer, plan));
    std::vector<int32_t> kept;
    for (int32_t i = 0; i < 150; ++i) {
      if (i < 70 || i % 3 != 0) kept.push_back(i);
    }
    const std::vector<HeadPlan> heads = {Keep(kept), Keep(kept)};
    KVG_TRY(cache.Reduce(1, heads));
    KVG_TRY(Feed(cache, 20, 2));
    return cache.Seal();
  }

  static constexpr int64_t kNarrow = 3;
  const std::vector<int32_t> channels_ = {0, 7, 31, 2, 3, 4};
  const std::vector<float> levels_ = {-1, -0.5f, 0.25f, 1};
  const std::vector<float> low_ = std::vector<float>(kHeads * kDim, -2.0f);
  const std::vector<float> high_ = std::vector<float>(kHeads * kDim, 1.5f);
  const std::vector<float> q_ = RandomValues(kQueryHeads * kDim, 3, 0.3f);
};

TEST_F(SerialTest, BytesBringBackWhatWasStored) {
  for (const StorePlan& plan : Plans()) {
    CachePools pools(*ops_);
    KvCache cache = NewCache(pools, DType::kF16);
    ASSERT_TRUE(Fill(cache, plan).ok());
    const Result<std::string> bytes = cache.Serialize();
    ASSERT_TRUE(bytes.ok()) << bytes.error().message;
    KvCache again = NewCache(pools, DType::kF16);
    const Status filled = again.Deserialize(*bytes);
    ASSERT_TRUE(filled.ok()) << filled.error().message;
    for (int step = 0; step < 3; ++step) {
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        EXPECT_TRUE(SameBits(Attend(again, layer, q_), Attend(cache, layer, q_)));
        EXPECT_EQ(again.Positions(layer, 1), cache.Positions(layer, 1));
      }
      EXPECT_EQ(*again.Serialize(), *cache.Serialize());
      KvBytes got = again.Bytes(), want = cache.Bytes();
      got.slack = want.slack = 0;
      EXPECT_EQ(got, want);
      for (KvCache* either : {&cache, &again}) {
        ASSERT_TRUE(Feed(*either, 40, 5).ok());
        ASSERT_TRUE(either->Seal().ok());
      }
    }
  }
}

// Whatever bit is turned: refused, or a cache that can be read.
TEST_F(SerialTest, BytesThatLieDoNoHarm) {
  Rng rng(1, 2);
  for (const StorePlan& plan : Plans()) {
    CachePools pools(*ops_);
    KvCache cache = NewCache(pools, DType::kF16);
    ASSERT_TRUE(Fill(cache, plan).ok());
    const std::string bytes = *cache.Serialize();
    int refused = 0;
    for (int i = 0; i < 300; ++i) {
      std::string wrong = bytes;
      // Half of them where the plan and the counts are.
      const size_t range = i % 2 == 0 ? std::min<size_t>(bytes.size(), 700) : bytes.size();
      wrong[rng.NextBelow(range)] ^= static_cast<char>(1 << rng.NextBelow(8));
      KvCache other = NewCache(pools, DType::kF16);
      if (!other.Deserialize(wrong).ok()) {
        ++refused;
        continue;
      }
      for (int64_t layer = 0; layer < kLayers; ++layer) Attend(other, layer, q_);
    }
    EXPECT_GT(refused, 30);
    KvCache cut = NewCache(pools, DType::kF16);
    for (size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 97) {
      EXPECT_FALSE(cut.Deserialize(std::string_view(bytes).substr(0, size)).ok()) << size;
    }
    EXPECT_EQ(cut.Bytes(), KvBytes());
  }
}

TEST_F(SerialTest, WhatCannotBeWrittenSaysSo) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 100).ok());
  StorePlan plan;
  plan.share_from_layer = 1;
  for (int64_t layer = 0; layer < kLayers; ++layer) ASSERT_TRUE(cache.Store(layer, plan).ok());
  const Result<std::string> bytes = cache.Serialize();
  ASSERT_FALSE(bytes.ok());
  EXPECT_THAT(bytes.error().message, HasSubstr("layer 0: a layer that shares"));
}

// Coded pages are laid out by a backend; floats are the same everywhere.
TEST_F(SerialTest, CodedPagesStayWithTheirBackend) {
  const auto reference = std::move(*MakeOps("reference", MakeThreadSettings(1)));
  CachePools pools(*ops_), others(*reference);
  KvCache plain = NewCache(pools), coded = NewCache(pools);
  ASSERT_TRUE(Feed(plain, 90).ok());
  ASSERT_TRUE(Fill(coded, Plans()[0]).ok());
  KvCache there = NewCache(others);
  const Status refused = there.Deserialize(*coded.Serialize());
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("reference cannot read"));
  ASSERT_TRUE(there.Deserialize(*plain.Serialize()).ok());
  EXPECT_TRUE(SameBits(Keys(there, 1, 0), Keys(plain, 1, 0)));
}

}  // namespace
}  // namespace kvgauge
