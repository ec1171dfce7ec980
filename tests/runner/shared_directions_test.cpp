// SPDX-License-Identifier: Apache-2.0
// Layers that share directions: what is read, attended to, counted and refused.
#include "methods/layouts/shared_directions.h"

#include <gmock/gmock.h>

#include "runner/cache_fixture.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SharedDirectionsTest : public CacheTest {};

// Directions (1, 0) and (0, 1) at 0.6 of the arc: (0.587785, 0.809017).
TEST_F(SharedDirectionsTest, LayersKeepOneDirectionAndTheirMagnitudes) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(cache.Append(100).ok());
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    std::vector<float> rows(100 * kHeads * kDim);
    for (int64_t i = 0; i < 100; ++i) {
      for (int64_t h = 0; h < kHeads; ++h) {
        float* x = &rows[static_cast<size_t>((i * kHeads + h) * kDim)];
        // Both layers agree, but for entry 7; entry 50 of head 1 points apart altogether.
        const bool turned = layer == 1 && i == 7, apart = layer == 1 && i == 50 && h == 1;
        x[turned ? 1 : 0] = static_cast<float>(apart ? -2 : layer == 0 ? 1 + 0.5 * i : 3.0);
      }
    }
    cache.Write(layer, View(rows, {100, kHeads, kDim}), View(rows, {100, kHeads, kDim}));
  }
  const KvCache before = cache.Fork();
  SharedDirections plan;
  plan.weight = 0.6;
  plan.retain = 0.0;
  KvCache none = cache.Fork();
  ASSERT_TRUE(none.Store(1, PlanOf(plan)).ok());
  const auto at = [](const std::vector<float>& rows, int64_t i, int64_t d) {
    return rows[static_cast<size_t>(i * kDim + d)];
  };
  std::vector<float> lower = Keys(none, 0, 0), upper = Values(none, 1, 0);
  EXPECT_NEAR(at(lower, 7, 0), 4.5 * 0.587785, 1e-5);
  EXPECT_NEAR(at(lower, 7, 1), 4.5 * 0.809017, 1e-5);
  EXPECT_NEAR(at(upper, 7, 0), 3 * 0.587785, 1e-5);
  EXPECT_NEAR(at(lower, 99, 0), 50.5, 1e-5);
  EXPECT_NEAR(at(upper, 99, 0), 3, 1e-5);
  // Half the payload, four magnitudes an entry and head.
  EXPECT_EQ(none.Bytes().payload, before.Bytes().payload / 2);
  EXPECT_EQ(none.Bytes().biases, 100 * kHeads * 4 * 4);
  EXPECT_EQ(none.Bytes().indices, 0);

  // Two of a hundred stay as they were, in both layers.
  plan.retain = 0.02;
  ASSERT_TRUE(cache.Store(1, PlanOf(plan)).ok());
  const std::vector<int32_t> positions = cache.Positions(1, 1);
  EXPECT_EQ(positions[0], 7);
  EXPECT_EQ(positions[1], 50);
  EXPECT_EQ(positions[2], 0);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::vector<float> now = Keys(cache, layer, 1), then = Keys(before, layer, 1);
    EXPECT_TRUE(SameBits(std::span<const float>(now).first(2 * kDim),
                         Picked(then, {positions[0], positions[1]})));
    EXPECT_TRUE(AllWithin(now, Picked(then, positions), 1e-4));
  }
  EXPECT_EQ(cache.Bytes().payload, kHeads * 2 * kDim * 4 * (98 + 2 * 2));
  EXPECT_EQ(cache.Bytes().biases, 98 * kHeads * 4 * 4);
  const int64_t held = before.Bytes().resident() + none.Bytes().resident();
  EXPECT_EQ(cache.Bytes().resident() + held, pools.of(Tier::kDevice).used_bytes());
  ASSERT_TRUE(Feed(cache, 2).ok());
  for (int64_t layer = 0; layer < kLayers; ++layer) ExpectAttendsAsRead(cache, layer);
  const std::vector<int32_t> few = {1, 2};
  const std::vector<HeadPlan> heads = {Keep(few), Keep(few)};
  EXPECT_THAT(cache.Reduce(0, heads).error().message, HasSubstr("shared with another layer"));
}

// A key stays apart for its own sake, and so does a value: entries lie by which halves do.
TEST_F(SharedDirectionsTest, RetainsKeysAndValuesSeparately) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(cache.Append(100).ok());
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    std::vector<float> keys(100 * kHeads * kDim), values(keys);
    for (int64_t i = 0; i < 100; ++i) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const auto at = static_cast<size_t>((i * kHeads + h) * kDim);
        // Keys 20 and 40 and values 40 and 60 point elsewhere in the upper layer.
        keys[at + (layer == 1 && (i == 20 || i == 40) ? 1 : 0)] = static_cast<float>(1 + i);
        values[at + (layer == 1 && (i == 40 || i == 60) ? 1 : 0)] = static_cast<float>(2 + i);
      }
    }
    cache.Write(layer, View(keys, {100, kHeads, kDim}), View(values, {100, kHeads, kDim}));
  }
  const KvCache before = cache.Fork();
  SharedDirections plan;
  plan.weight = 0.6;
  plan.retain = 0.02;
  plan.later = true;
  ASSERT_TRUE(cache.Store(1, PlanOf(plan)).ok());
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    for (int64_t head = 0; head < kHeads; ++head) {
      const std::vector<int32_t> positions = cache.Positions(layer, head);
      // Both halves, the key, the value, and the shared ones in their order.
      EXPECT_THAT(std::vector<int32_t>(positions.begin(), positions.begin() + 4),
                  ElementsAre(40, 20, 60, 0));
      // Everything but the retained ones is parallel in both layers, so all of it reads as before.
      EXPECT_TRUE(
          AllWithin(Keys(cache, layer, head), Picked(Keys(before, layer, head), positions), 1e-4));
      EXPECT_TRUE(AllWithin(Values(cache, layer, head),
                            Picked(Values(before, layer, head), positions), 1e-4));
    }
  }
  // One key and one value less are shared by each head, and are held twice.
  EXPECT_EQ(cache.Bytes().payload, kHeads * 2 * kDim * 4 * (98 + 2 * 2));
  EXPECT_EQ(cache.Bytes().biases, 98 * kHeads * 4 * 4);
  EXPECT_EQ(cache.Bytes().resident() + before.Bytes().resident(),
            pools.of(Tier::kDevice).used_bytes());
  ASSERT_TRUE(Feed(cache, 3).ok());
  ASSERT_TRUE(cache.Seal().ok());
  for (int64_t layer = 0; layer < kLayers; ++layer) ExpectAttendsAsRead(cache, layer);
}

// Entries that come later share when they are sealed: one by one or together, with the same bits
// as if they had been there; forks do not see each other's.
TEST_F(SharedDirectionsTest, LaterEntriesShareToo) {
  CachePools pools(*ops_);
  SharedDirections plan;
  plan.weight = 0.6;
  plan.later = true;
  KvCache at_once = NewCache(pools);
  ASSERT_TRUE(Feed(at_once, 70).ok());
  KvCache later = NewCache(pools);
  ASSERT_TRUE(Feed(later, 60).ok());
  ASSERT_TRUE(at_once.Store(1, PlanOf(plan)).ok());
  ASSERT_TRUE(later.Store(1, PlanOf(plan)).ok());
  const KvCache fork = later.Fork();
  const std::vector<float> forked = Keys(fork, 1, 1);
  for (const int64_t rows : {1, 1, 3, 5}) {
    ASSERT_TRUE(Feed(later, rows).ok());
    ASSERT_TRUE(later.Seal().ok());
  }
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    for (int64_t head = 0; head < kHeads; ++head) {
      EXPECT_TRUE(SameBits(Keys(later, layer, head), Keys(at_once, layer, head)));
      EXPECT_TRUE(SameBits(Values(later, layer, head), Values(at_once, layer, head)));
    }
    ExpectAttendsAsRead(later, layer);
  }
  EXPECT_TRUE(SameBits(Keys(fork, 1, 1), forked));
  EXPECT_EQ(later.Bytes().payload, at_once.Bytes().payload);
  EXPECT_EQ(later.Bytes().biases, at_once.Bytes().biases);
  // Without the plan's word they stay as they are.
  plan.later = false;
  KvCache kept = NewCache(pools);
  ASSERT_TRUE(Feed(kept, 60).ok());
  ASSERT_TRUE(kept.Store(1, PlanOf(plan)).ok());
  ASSERT_TRUE(Feed(kept, 10).ok());
  ASSERT_TRUE(kept.Seal().ok());
  EXPECT_GT(kept.Bytes().payload, later.Bytes().payload);
}

}  // namespace
}  // namespace kvgauge
