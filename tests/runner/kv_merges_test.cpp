// SPDX-License-Identifier: Apache-2.0
// Plans that merge entries: what is added to whom, and what an entry weighs that stands for more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/window_sums.h"
#include "runner/cache_fixture.h"
#include "runner/kv_cache.h"

namespace kvgauge {
namespace {

// r equal keys are one key with the mean value and the log of r.
TEST_F(CacheTest, LogWeightStandsForEqualEntries) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  const std::vector<float> first = Rows(0, 0, 1, 1), twin = Rows(0, 1, 1, 1);
  ASSERT_TRUE(cache.Append(5).ok());
  std::vector<float> k, v = Rows(0, 0, 5, 77);
  for (int i = 0; i < 4; ++i) k.insert(k.end(), twin.begin(), twin.end());
  k.insert(k.end(), first.begin(), first.end());
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    cache.Write(layer, View(k, {5, kHeads, kDim}), View(v, {5, kHeads, kDim}));
  }
  const std::vector<float> q = RandomValues(kQueryHeads * kDim, 8, 0.2f);
  const std::vector<float> want = Attend(cache, 0, q);
  const std::vector<int32_t> kept = {0, 4}, from = {1, 2, 3}, to = {0, 0, 0};
  const std::vector<float> weight(3, 0.25f), self = {0.25f, 1, 1, 1, 1};
  const std::vector<float> log_weight = {std::log(4.0f), 0};
  HeadPlan one = Keep(kept);
  one.values = {.from = View(from, {3}),
                .to = View(to, {3}),
                .weight = View(weight, {3}),
                .self = View(self, {5})};
  one.log_weight = View(log_weight, {2});
  const std::vector<HeadPlan> plan = {one, one};
  ASSERT_TRUE(cache.Reduce(0, plan).ok());
  EXPECT_TRUE(AllWithin(Attend(cache, 0, q), want, 1e-5));
}

TEST_F(CacheTest, MergesAddWhatTheySay) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 100).ok());
  const std::vector<float> keys = Keys(cache, 0, 0), values = Values(cache, 0, 0);
  const std::vector<float> other = Keys(cache, 0, 1);
  const std::vector<int32_t> kept = {0, 10, 99}, from = {1, 2, 50, 3}, to = {0, 10, 10, -1};
  const std::vector<float> weight = {0.5f, 2.0f, -1.0f, 7.0f}, log_weight = {0.1f, 0.2f, 0.3f};
  std::vector<float> self(100, 1.0f);
  self[10] = 0.25f;
  HeadPlan first = Keep(kept);
  first.keys.from = View(from, {4});
  first.keys.to = View(to, {4});
  first.keys.weight = View(weight, {4});
  first.values = first.keys;
  first.values.self = View(self, {100});
  first.log_weight = View(log_weight, {3});
  const std::vector<HeadPlan> plan = {first, Keep(kept)};
  ASSERT_TRUE(cache.Reduce(0, plan).ok());
  const auto at = [](const std::vector<float>& rows, int64_t i, int64_t d) {
    return rows[static_cast<size_t>(i * kDim + d)];
  };
  const std::vector<float> k = Keys(cache, 0, 0), v = Values(cache, 0, 0);
  for (int64_t d = 0; d < kDim; ++d) {
    EXPECT_FLOAT_EQ(at(k, 0, d), at(keys, 0, d) + 0.5f * at(keys, 1, d));
    EXPECT_NEAR(at(k, 1, d), at(keys, 10, d) + 2 * at(keys, 2, d) - at(keys, 50, d), 1e-4);
    EXPECT_NEAR(at(v, 1, d), 0.25f * at(values, 10, d) + 2 * at(values, 2, d) - at(values, 50, d),
                1e-4);
    EXPECT_EQ(at(v, 2, d), at(values, 99, d));
  }
  EXPECT_TRUE(SameBits(Keys(cache, 0, 1), Picked(other, kept)));
  EXPECT_EQ(cache.LogWeights(0, 0), log_weight);
  EXPECT_EQ(cache.LogWeights(0, 1), std::vector<float>(3));
  EXPECT_EQ(cache.Bytes(0).biases, 3 * 4);
  EXPECT_EQ(cache.Bytes().resident(), pools.of(Tier::kDevice).used_bytes());
  ASSERT_TRUE(Feed(cache, 1).ok());
  EXPECT_EQ(cache.LogWeights(0, 0), (std::vector<float>{0.1f, 0.2f, 0.3f, 0.0f}));
  EXPECT_EQ(cache.Bytes(0).biases, 4 * 4);
}

// A merge that spreads over what follows is the list written out, where many entries go and where
// one does, as in a decode step.
TEST_F(CacheTest, MergesSpreadOverWhatFollows) {
  CachePools pools(*ops_);
  constexpr int64_t kSpread = 3;
  for (const int64_t gone : {90, 1}) {
    SCOPED_TRACE(gone);
    KvCache once = NewCache(pools);
    ASSERT_TRUE(Feed(once, 100).ok());
    std::vector<int32_t> kept, every;
    for (int32_t i = 0; i < 100; ++i) {
      every.push_back(i);
      if (i < 4 || i >= 4 + gone) kept.push_back(i);
    }
    if (gone == 1) {  // positions are kept, as after a prompt
      every.erase(every.begin() + 50);
      const std::vector<HeadPlan> first = {Keep(every), Keep(every)};
      ASSERT_TRUE(once.Reduce(0, first).ok());
      kept.erase(std::find(kept.begin(), kept.end(), 99));
    }
    KvCache spread = once.Fork();
    // Out of order, one of them nowhere, one with less behind it than the merge spreads over.
    const std::vector<int32_t> from =
        gone == 1 ? std::vector<int32_t>{4} : std::vector<int32_t>{9, 5, 20, 30, 7};
    const std::vector<int32_t> to =
        gone == 1 ? std::vector<int32_t>{97} : std::vector<int32_t>{95, 2, 95, -1, 99};
    std::vector<float> weight(from.size());
    for (size_t i = 0; i < weight.size(); ++i) weight[i] = 0.5f + static_cast<float>(i);
    HeadPlan plan = Keep(kept);
    plan.values = {.from = View(from, {std::ssize(from)}),
                   .to = View(to, {std::ssize(to)}),
                   .weight = View(weight, {std::ssize(weight)}),
                   .self = {},
                   .spread = kSpread};
    const std::vector<HeadPlan> plans = {plan, Keep(kept)};
    ASSERT_TRUE(spread.Reduce(0, plans).ok());
    std::vector<int32_t> all_from, all_to;
    std::vector<float> all_weight;
    for (size_t i = 0; i < from.size(); ++i) {
      const auto at = std::find(kept.begin(), kept.end(), to[i]);
      for (int64_t k = 0; k < kSpread && k < kept.end() - at; ++k) {
        all_from.push_back(from[i]);
        all_to.push_back(at[k]);
        all_weight.push_back(weight[i]);
      }
    }
    EXPECT_EQ(all_to.size(), gone == 1 ? 2u : 10u);
    plan.values = {.from = View(all_from, {std::ssize(all_from)}),
                   .to = View(all_to, {std::ssize(all_to)}),
                   .weight = View(all_weight, {std::ssize(all_weight)}),
                   .self = {}};
    const std::vector<HeadPlan> written_out = {plan, Keep(kept)};
    const std::vector<float> before = Values(once, 0, 0);
    ASSERT_TRUE(once.Reduce(0, written_out).ok());
    EXPECT_TRUE(AllWithin(Values(spread, 0, 0), Values(once, 0, 0), 1e-5));
    EXPECT_FALSE(AllWithin(Values(spread, 0, 0), Picked(before, kept), 1e-2));
    EXPECT_TRUE(SameBits(Keys(spread, 0, 0), Keys(once, 0, 0)));
  }
}

// As if windows of all rows were summed: wherever values go, and the sign of zeros elsewhere.
TEST_F(CacheTest, SpreadsHaveTheBitsOfWindowsOverAllRows) {
  CachePools pools(*ops_);
  constexpr int64_t kEntries = 200, kSpread = 6;
  std::vector<int32_t> kept;
  for (int32_t i = 0; i < kEntries; ++i) {
    if (i < 30 || i >= 120) kept.push_back(i);
  }
  const std::vector<int32_t> from = {31, 90, 33, 119, 60};
  const int64_t moved = std::ssize(from), count = std::ssize(kept);
  const std::vector<float> weight = {0.5f, -2.0f, 0.25f, 3.0f, 1.0f};
  const std::vector<float> k = Rows(0, 0, kEntries, 1);
  std::vector<float> v = Rows(0, 0, kEntries, 2);
  for (size_t i = 0; i < v.size(); i += 3) v[i] = -0.0f;
  for (const std::vector<int32_t>& to :
       {std::vector<int32_t>{120, 150, 120, -1, 153}, std::vector<int32_t>{0, 2, 1, 0, 0},
        std::vector<int32_t>{199, 198, 199, 199, 190}, std::vector<int32_t>{-1, -1, -1, -1, -1}}) {
    SCOPED_TRACE(to[0]);
    KvCache cache = NewCache(pools);
    ASSERT_TRUE(cache.Append(kEntries).ok());
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      cache.Write(layer, View(k, {kEntries, kHeads, kDim}), View(v, {kEntries, kHeads, kDim}));
    }
    const std::vector<float> before = Values(cache, 0, 0);
    HeadPlan plan = Keep(kept);
    plan.values = {.from = View(from, {moved}),
                   .to = View(to, {moved}),
                   .weight = View(weight, {moved}),
                   .self = {},
                   .spread = kSpread};
    const std::vector<HeadPlan> plans = {plan, Keep(kept)};
    ASSERT_TRUE(cache.Reduce(0, plans).ok());

    std::vector<float> want = Picked(before, kept), given = Picked(before, from);
    std::vector<float> sums(want.size()), windows(want.size()), spare(2 * want.size());
    std::vector<int32_t> place;
    for (const int32_t entry : to) {
      const auto at = std::find(kept.begin(), kept.end(), entry);
      place.push_back(at == kept.end() ? -1 : static_cast<int32_t>(at - kept.begin()));
    }
    ops_->select->ScatterAdd(View(given, {moved, kDim}), View(place, {moved}),
                             View(weight, {moved}), View(sums, {count, kDim}));
    WindowSums(*ops_, View(sums, {count, kDim}), kSpread, WindowSide::kBehind,
               View(spare, {2 * count, kDim}), View(windows, {count, kDim}));
    ops_->rows->Combine(View(want, {count, kDim}), View(windows, {count, kDim}), Binary::kAdd,
                        View(want, {count, kDim}));
    EXPECT_TRUE(SameBits(Values(cache, 0, 0), want));
  }
}

// Several entries that go in one decode step: all go to their first targets before any goes to its
// second.
TEST_F(CacheTest, SpreadsInPlaceAddStepByStep) {
  CachePools pools(*ops_);
  constexpr int64_t kSpread = 4;
  KvCache once = NewCache(pools);
  ASSERT_TRUE(Feed(once, 100).ok());
  std::vector<int32_t> every, kept;
  for (int32_t i = 0; i < 100; ++i) {
    if (i != 50) every.push_back(i);
  }
  const std::vector<HeadPlan> first = {Keep(every), Keep(every)};
  ASSERT_TRUE(once.Reduce(0, first).ok());  // positions are kept, as after a prompt
  for (int32_t i = 0; i < 99; ++i) {
    if (i != 4 && i != 7 && i != 20) kept.push_back(i);
  }
  KvCache spread = once.Fork();
  const std::vector<int32_t> from = {7, 4, 20}, to = {97, 95, 30};
  const std::vector<float> weight = {0.7f, -1.3f, 0.1f};
  HeadPlan plan = Keep(kept);
  plan.values = {.from = View(from, {3}),
                 .to = View(to, {3}),
                 .weight = View(weight, {3}),
                 .self = {},
                 .spread = kSpread};
  const std::vector<HeadPlan> plans = {plan, Keep(kept)};
  ASSERT_TRUE(spread.Reduce(0, plans).ok());
  std::vector<int32_t> all_from, all_to;
  std::vector<float> all_weight;
  for (int32_t step = 0; step < kSpread; ++step) {
    for (size_t i = 0; i < from.size(); ++i) {
      all_from.push_back(from[i]);
      all_to.push_back(to[i] + step < 99 ? to[i] + step : -1);
      all_weight.push_back(weight[i]);
    }
  }
  const int64_t count = std::ssize(all_from);
  plan.values = {.from = View(all_from, {count}),
                 .to = View(all_to, {count}),
                 .weight = View(all_weight, {count}),
                 .self = {}};
  const std::vector<HeadPlan> written_out = {plan, Keep(kept)};
  ASSERT_TRUE(once.Reduce(0, written_out).ok());
  EXPECT_TRUE(SameBits(Values(spread, 0, 0), Values(once, 0, 0)));
}

}  // namespace
}  // namespace kvgauge
