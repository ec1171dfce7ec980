// SPDX-License-Identifier: Apache-2.0
// Entries that went through a transform coder: what they become, and what is written.
#include "methods/layouts/basis_coded.h"

#include <gmock/gmock.h>

#include <cmath>

#include "runner/cache_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class BasisCodedTest : public CacheTest {
 protected:
  static constexpr int64_t kTokens = 300;  // a whole stretch of shared tables, and some more
  static constexpr int64_t kWidth = kHeads * kDim;

  // Reflections: x - 2 v (v . x) for a unit v, whose columns are orthonormal.
  BasisCodedTest()
      : mean_(static_cast<size_t>(kWidth)), basis_(static_cast<size_t>(kWidth * kWidth)) {
    std::vector<float> v = RandomValues(kWidth, 9);
    float square = 0;
    for (const float x : v) square += x * x;
    for (int64_t i = 0; i < kWidth; ++i) {
      mean_[static_cast<size_t>(i)] = 0.01f * static_cast<float>(i % 5);
      for (int64_t j = 0; j < kWidth; ++j) {
        basis_[static_cast<size_t>(i * kWidth + j)] =
            (i == j ? 1.0f : 0.0f) -
            2 * v[static_cast<size_t>(i)] * v[static_cast<size_t>(j)] / square;
      }
    }
  }

  BasisCoded Layout(int bits, int64_t sinks = 3, int64_t recent = 10) const {
    BasisCoded layout;
    for (BasisCoded::Side* side : {&layout.keys, &layout.values}) {
      side->mean = View(mean_, {1, kWidth});
      side->basis = View(basis_, {kWidth, kWidth});
      side->groups = {{8, bits}, {kWidth - 8, bits}};
    }
    layout.sinks = sinks;
    layout.recent = recent;
    return layout;
  }
  Status Fill(KvCache& cache, const BasisCoded& layout) {
    KVG_TRY(Feed(cache, kTokens));
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      KVG_TRY(cache.Store(layer, PlanOf(layout)));
    }
    return {};
  }
  std::vector<float> mean_, basis_;
  const std::vector<float> q_ = RandomValues(kQueryHeads * kDim, 3, 0.3f);
};

TEST_F(BasisCodedTest, TokensHaveEvenStepsInTheBasis) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools), plain = NewCache(pools);
  ASSERT_TRUE(Fill(cache, Layout(4)).ok());
  ASSERT_TRUE(Feed(plain, kTokens).ok());
  const auto coordinates = [&](KvCache& of, int64_t t) {
    std::vector<double> x, out(static_cast<size_t>(kWidth));
    for (int64_t h = 0; h < kHeads; ++h) {
      const std::vector<float> keys = Keys(of, 0, h);
      for (int64_t c = 0; c < kDim; ++c) x.push_back(keys[static_cast<size_t>(t * kDim + c)]);
    }
    for (int64_t j = 0; j < kWidth; ++j) {
      for (int64_t i = 0; i < kWidth; ++i) {
        out[static_cast<size_t>(j)] +=
            (x[static_cast<size_t>(i)] - double{mean_[static_cast<size_t>(i)]}) *
            basis_[static_cast<size_t>(i * kWidth + j)];
      }
    }
    return out;
  };
  for (const int64_t t : {0, 2, 3, 100, 289, 290, 299}) {
    const std::vector<double> held = coordinates(cache, t), own = coordinates(plain, t);
    const bool coded = t >= 3 && t < kTokens - 10;
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>(0, 8), {8, kWidth}}) {
      const auto [low, high] = std::minmax_element(own.begin() + begin, own.begin() + end);
      const double step = (*high - *low) / 15;
      for (int64_t j = begin; j < end; ++j) {
        const auto at = static_cast<size_t>(j);
        EXPECT_NEAR(held[at], own[at], coded ? 0.52 * step : 1e-6) << t;
        if (!coded) continue;
        const double steps = (held[at] - *low) / step;
        EXPECT_NEAR(steps, std::round(steps), 0.02) << t;
      }
    }
  }
}

TEST_F(BasisCodedTest, WrittenCachesHoldCodesAndGoOnAlike) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    CachePools pools(*ops_);
    KvCache cache = NewCache(pools, dtype), plain = NewCache(pools, dtype);
    ASSERT_TRUE(Fill(cache, Layout(2)).ok());
    ASSERT_TRUE(Feed(plain, kTokens).ok());
    KvCache again = NewCache(pools, dtype);
    const Status filled = again.Deserialize(*cache.Serialize());
    ASSERT_TRUE(filled.ok()) << filled.error().message;
    for (int step = 0; step < 3; ++step) {
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        EXPECT_TRUE(SameBits(Attend(again, layer, q_), Attend(cache, layer, q_)));
      }
      EXPECT_EQ(*again.Serialize(), *cache.Serialize());
      EXPECT_EQ(again.Bytes(), cache.Bytes());
      for (KvCache* either : {&cache, &again}) {
        ASSERT_TRUE(Feed(*either, 7, 5).ok());
        ASSERT_TRUE(either->Seal().ok());
      }
    }
    // Back into the middle of what was coded, and on from there.
    for (KvCache* either : {&cache, &again}) {
      ASSERT_TRUE(either->Truncate(270).ok());
      ASSERT_TRUE(Feed(*either, 20, 8).ok());
    }
    EXPECT_EQ(*again.Serialize(), *cache.Serialize());
    KvCache shorter = NewCache(pools, dtype);
    ASSERT_TRUE(shorter.Deserialize(*cache.Serialize()).ok());
    EXPECT_EQ(Keys(shorter, 1, 1), Keys(cache, 1, 1));
  }
}

TEST_F(BasisCodedTest, BytesThatLieAreRefusedOrReadable) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools, DType::kF16);
  ASSERT_TRUE(Fill(cache, Layout(3)).ok());
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

TEST_F(BasisCodedTest, WhatCannotBeDoneSaysSo) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  BasisCoded short_of = Layout(2);
  short_of.keys.groups.pop_back();
  ASSERT_TRUE(Feed(cache, 9).ok());
  EXPECT_THAT(cache.Store(0, PlanOf(short_of)).error().message,
              HasSubstr("groups have 8 coordinates together"));
  BasisCoded loud = Layout(9);
  EXPECT_THAT(cache.Store(0, PlanOf(loud)).error().message, HasSubstr("with 9 bits"));
  ASSERT_TRUE(cache.Store(0, PlanOf(Layout(2))).ok());
  const std::vector<int32_t> two = {0, 1};
  const std::vector<HeadPlan> heads = {Keep(two), Keep(two)};
  EXPECT_THAT(cache.Reduce(0, heads).error().message, HasSubstr("cannot be dropped or merged"));
}

// The search is as good as all ways to choose, where these are few.
TEST(BestGroupsOfCoordinates, LoseLeast) {
  const std::vector<float> variances = {9, 8, 7,    7,    6,    6,    5, 5, 1, 1, 1, 1,
                                        1, 1, 0.1f, 0.1f, 0.1f, 0.1f, 0, 0, 0, 0, 0, 0};
  int64_t before = 0;
  for (const int64_t budget : {0, 40, 64, 100, 200, 400}) {
    const std::vector<BasisCoded::Group> groups = BestGroups(variances, budget);
    int64_t coordinates = 0, bits = 0;
    for (const BasisCoded::Group& group : groups) {
      coordinates += group.size;
      if (group.bits > 0) bits += group.size * group.bits + 32;
    }
    EXPECT_EQ(coordinates, 24);
    EXPECT_LE(bits, budget);
    EXPECT_GE(bits, before);
    before = bits;
  }

  const std::vector<BasisCoded::Group> some = BestGroups(variances, 100);
  EXPECT_GT(some[0].bits, 0);
  EXPECT_EQ(some.back().bits, 0);
}

}  // namespace
}  // namespace kvgauge
