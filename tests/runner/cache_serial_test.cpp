// SPDX-License-Identifier: Apache-2.0
// Caches that are stored otherwise than plainly, written and read back.
#include <gmock/gmock.h>

#include <string>

#include "methods/basis_change.h"
#include "methods/layouts/coded.h"
#include "methods/layouts/group_basis.h"
#include "methods/layouts/learning_basis.h"
#include "methods/layouts/narrow_keys.h"
#include "methods/layouts/plain.h"
#include "methods/layouts/shared_directions.h"
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
    std::vector<StorePlan> plans;
    Coded coded;
    coded.keys = Affine(CodeAxis::kChannel);
    coded.values = Affine(CodeAxis::kToken);
    coded.seal_keys = {.unit = 32, .keep_recent = 0};
    coded.seal_values = {.unit = 1, .keep_recent = 40};
    coded.tier = Tier::kHost;
    plans.push_back(PlanOf(coded));
    // Ranges, levels and outliers; keys that turn when they are read.
    Coded ranged;
    ranged.keys.kind = ranged.values.kind = KvCodecKind::kCodebook;
    ranged.keys.bits = ranged.values.bits = 2;
    ranged.keys.levels = ranged.values.levels = View(levels_, {4});
    ranged.keys.axis = CodeAxis::kChannel;
    ranged.values.group = kDim;
    ranged.values.table = View(edges_, {3});
    ranged.ranges = {.low = View(low_, {kHeads, kDim}), .high = View(high_, {kHeads, kDim})};
    ranged.seal_keys.unit = 64;
    ranged.sinks = 3;
    plans.push_back(PlanOf(ranged, {.raw = true}));
    // A correction and its bases.
    Coded corrected;
    corrected.keys = Affine(CodeAxis::kChannel);
    corrected.keys.outlier_share = 0.05;
    corrected.keys.rank = 2;
    corrected.seal_keys = {.unit = 64, .keep_recent = 7};
    plans.push_back(PlanOf(corrected));
    plans.push_back(
        PlanOf(Plain(), {.raw = true, .position = PositionPolicy::kClipped, .position_limit = 30}));
    // Keys of few numbers.
    NarrowKeys narrow;
    narrow.dim = kNarrow;
    narrow.recent = 33;
    narrow.channels = View(channels_, {kHeads, kNarrow});
    plans.push_back(PlanOf(narrow));
    // Float8 with scales of channels, and of heads that were found in this sequence; blocks.
    Coded scaled;
    scaled.keys.kind = KvCodecKind::kFp8E4M3;
    scaled.values.kind = KvCodecKind::kFp8E5M2;
    scaled.scales.keys = View(scales_, {kHeads, kDim});
    scaled.scales.values = View(head_scales_, {kHeads, 1});
    plans.push_back(PlanOf(scaled));
    Coded blocks;
    blocks.keys.kind = KvCodecKind::kNvFp4;
    blocks.values.kind = KvCodecKind::kQ5_1;
    blocks.scales.keys = View(one_scale_, {1, 1});
    blocks.scales.constant = true;
    plans.push_back(PlanOf(blocks));
    // One range for two pages; sizes of a group of entries.
    Coded wide;
    wide.keys = Affine(CodeAxis::kChannel);
    wide.keys.group = 64;
    wide.keys.range_pages = 2;
    wide.values.kind = KvCodecKind::kMeanSizes;
    wide.values.bits = 2;
    wide.values.group = 32;
    wide.values.stages = 5;
    wide.seal_keys.unit = 128;
    wide.seal_values.unit = 32;
    plans.push_back(PlanOf(wide));
    // One range for all that is coded at once, and other codes for what comes later.
    Coded later;
    later.keys = wide.keys;
    later.keys.range_pages = 0;
    later.keys.rank = 2;
    later.values = Affine(CodeAxis::kToken);
    later.values.exact_scale = true;
    later.seal_keys.unit = later.seal_values.unit = 64;
    later.later = LaterCodes{wide.keys, later.values, {.unit = 16}, {.unit = 16}};
    later.later->keys.range_pages = 1;
    later.later->keys.group = 16;
    plans.push_back(PlanOf(later));
    // Other coordinates, there and back alike and not.
    Coded turned;
    turned.keys = Affine(CodeAxis::kToken);
    turned.values = Affine(CodeAxis::kToken);
    turned.keys.dim = turned.values.dim = kDim;
    turned.values.clip = 0.75f;
    plans.push_back(
        PlanOf(Transformed(turned, HadamardBasis(kDim), RandomBasis(kDim, 2 * kDim, 0.5, 3))));
    // Coordinates in bases that learn.
    LearningBasis learning;
    learning.key_rank = learning.value_rank = kNarrow;
    learning.sinks = 2;
    learning.recent = 9;
    learning.every = 8;
    learning.step = 0.1f;
    learning.key_basis = learning.value_basis = View(basis_, {kHeads * kDim, kNarrow});
    plans.push_back(PlanOf(learning));
    return plans;
  }

  // The first units of each head.
  static std::vector<float> Units() {
    std::vector<float> units(static_cast<size_t>(kHeads * kDim * kNarrow));
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < kNarrow; ++i) units[(h * kDim + i) * kNarrow + i] = 1.0f;
    }
    return units;
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

  // Directions of two layers, coded and not, and coordinates of a group.
  static std::vector<StorePlan> SharedPlans() {
    std::vector<StorePlan> plans;
    for (const int bits : {0, 4}) {
      SharedDirections directions;
      directions.retain = 0.1;
      directions.later = bits == 0;
      directions.bits = bits;
      plans.push_back(PlanOf(directions));
    }
    GroupBasis coordinates;
    coordinates.layers = kLayers;
    coordinates.value_rank = kNarrow;
    plans.push_back(PlanOf(coordinates));
    coordinates.key_rank = 2 * kNarrow;
    plans.push_back(PlanOf(coordinates));
    return plans;
  }
  static Status FillShared(KvCache& cache, const StorePlan& plan) {
    KVG_TRY(Feed(cache, 100));
    if (const auto* group = plan.Get<GroupBasis>(); group != nullptr) {
      GroupBasis own = *group;
      for (own.below = 0; own.below < kLayers; ++own.below) {
        KVG_TRY(cache.Store(own.below, PlanOf(own)));
      }
    } else {
      KVG_TRY(cache.Store(kLayers - 1, plan));
    }
    KVG_TRY(Feed(cache, 20, 2));
    return cache.Seal();
  }

  static constexpr int64_t kNarrow = 3;
  const std::vector<float> basis_ = Units();
  const std::vector<int32_t> channels_ = {0, 7, 31, 2, 3, 4};
  const std::vector<float> one_scale_ = {2.0f}, head_scales_ = {0.5f, 0.0625f};
  const std::vector<float> scales_ = std::vector<float>(kHeads * kDim, 0.03125f);
  const std::vector<float> levels_ = {-1, -0.5f, 0.25f, 1};
  const std::vector<float> edges_ = {-0.5f, 0.1f, 0.9f};
  const std::vector<float> low_ = std::vector<float>(kHeads * kDim, -2.0f);
  const std::vector<float> high_ = std::vector<float>(kHeads * kDim, 1.5f);
  const std::vector<float> q_ = RandomValues(kQueryHeads * kDim, 3, 0.3f);
};

TEST_F(SerialTest, BytesBringBackWhatWasStored) {
  for (const StorePlan& plan : Plans()) {
    CachePools pools(*ops_);
    KvCache cache = NewCache(pools, DType::kF16);
    const Status stored = Fill(cache, plan);
    ASSERT_TRUE(stored.ok()) << stored.error().message;
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
    const Status stored = Fill(cache, plan);
    ASSERT_TRUE(stored.ok()) << stored.error().message;
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

// Bytes hold what layers share once, and so do the caches that are read; later entries share on.
TEST_F(SerialTest, LayersThatShareComeBack) {
  Rng rng(3, 4);
  for (const StorePlan& plan : SharedPlans()) {
    CachePools pools(*ops_), others(*ops_);
    KvCache cache = NewCache(pools, DType::kF16);
    const Status stored = FillShared(cache, plan);
    ASSERT_TRUE(stored.ok()) << stored.error().message;
    const std::string bytes = *cache.Serialize();
    KvCache again = NewCache(others, DType::kF16);
    const Status filled = again.Deserialize(bytes);
    ASSERT_TRUE(filled.ok()) << filled.error().message;
    EXPECT_EQ(others.of(Tier::kDevice).used_bytes(), pools.of(Tier::kDevice).used_bytes());
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
    int refused = 0;
    for (int i = 0; i < 300; ++i) {
      std::string wrong = bytes;
      const size_t range = i % 2 == 0 ? std::min<size_t>(bytes.size(), 700) : bytes.size();
      wrong[rng.NextBelow(range)] ^= static_cast<char>(1 << rng.NextBelow(8));
      KvCache other = NewCache(others, DType::kF16);
      if (!other.Deserialize(wrong).ok()) {
        ++refused;
        continue;
      }
      for (int64_t layer = 0; layer < kLayers; ++layer) Attend(other, layer, q_);
      if (Feed(other, 3, 6).ok()) static_cast<void>(other.Seal());
    }
    EXPECT_GT(refused, 10);
    // Either layer as the other.
    const std::string_view name = SharedDirections::kId;
    for (size_t at = bytes.find(name); at != std::string::npos; at = bytes.find(name, at + 1)) {
      std::string wrong = bytes;
      wrong[at + name.size()] ^= 1;
      KvCache other = NewCache(others, DType::kF16);
      EXPECT_FALSE(other.Deserialize(wrong).ok());
    }
  }
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
