// SPDX-License-Identifier: Apache-2.0
// Keys that gave up some of their numbers: what is read, attended to, counted and refused.
#include "methods/layouts/narrow_keys.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "runner/cache_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class NarrowTest : public CacheTest {
 protected:
  static constexpr int64_t kNarrow = 20, kWide = 30, kTokens = 150;

  static std::vector<int32_t> Channels() {
    std::vector<int32_t> channels;
    for (int32_t c = 0; c < kNarrow; ++c) channels.push_back(c + c / 2);           // 0 1 3 4 6 ..
    for (int32_t c = 0; c < kNarrow; ++c) channels.push_back(kDim - kNarrow + c);  // the last
    return channels;
  }

  NarrowKeys Layout() const {
    NarrowKeys layout;
    layout.dim = kNarrow;
    layout.recent = kWide;
    layout.channels = View(channels_, {kHeads, kNarrow});
    return layout;
  }
  StorePlan Plan() const { return PlanOf(Layout()); }

  static Status StoreAll(KvCache& cache, const StorePlan& plan) {
    for (int64_t layer = 0; layer < kLayers; ++layer) KVG_TRY(cache.Store(layer, plan));
    return {};
  }

  // Rows of a head without what it gives up, in entries before `wide`.
  std::vector<float> Zeroed(std::vector<float> rows, int64_t head, int64_t wide) const {
    const auto begin = channels_.begin() + head * kNarrow;
    for (int64_t i = 0; i < std::min(wide, std::ssize(rows) / kDim); ++i) {
      for (int32_t d = 0; d < kDim; ++d) {
        if (!std::binary_search(begin, begin + kNarrow, d)) rows[i * kDim + d] = 0;
      }
    }
    return rows;
  }

  // What is allocated beyond what is counted.
  static void ExpectDeclaredIsAllocated(CachePools& pools, const KvCache& cache) {
    EXPECT_EQ(cache.Bytes().resident(), pools.of(Tier::kDevice).used_bytes());
    EXPECT_GE(cache.Bytes().slack, 0);
  }

  const std::vector<int32_t> channels_ = Channels();
  const std::vector<float> q_ = RandomValues(kQueryHeads * kDim, 3, 0.3f);
};

TEST_F(NarrowTest, ReadsAndAttendsAsIfTheRestWereZero) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    CachePools pools(*ops_);
    KvCache whole = NewCache(pools, dtype);
    ASSERT_TRUE(Feed(whole, kTokens).ok());
    KvCache cache = whole.Fork();
    ASSERT_TRUE(StoreAll(cache, Plan()).ok());
    ASSERT_TRUE(Feed(cache, 5).ok());
    ASSERT_TRUE(Feed(whole, 5).ok());
    ASSERT_TRUE(cache.Seal().ok());
    // The same as floats, zeros written out.
    KvCache zeroed = NewCache(pools, dtype);
    ASSERT_TRUE(zeroed.Append(kTokens + 5).ok());
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      std::vector<float> keys, values;
      for (int64_t h = 0; h < kHeads; ++h) {
        const std::vector<float> want = Zeroed(Keys(whole, layer, h), h, kTokens - kWide);
        EXPECT_EQ(Keys(cache, layer, h), want);
        EXPECT_EQ(Values(cache, layer, h), Values(whole, layer, h));
        std::vector<float> part(static_cast<size_t>(70 * kDim));
        cache.ReadKeys(layer, h, 85, View(part, {70, kDim}));
        EXPECT_EQ(part, std::vector<float>(want.begin() + 85 * kDim, want.end()));
        keys.insert(keys.end(), want.begin(), want.end());
        const std::vector<float> own = Values(whole, layer, h);
        values.insert(values.end(), own.begin(), own.end());
      }
      const auto rows = [&](const std::vector<float>& all) {
        Tensor t = View(all, {kTokens + 5, kHeads, kDim});
        t.stride[0] = kDim;
        t.stride[1] = (kTokens + 5) * kDim;
        return t;
      };
      zeroed.Write(layer, rows(keys), rows(values));
    }
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const double bound = dtype == DType::kBF16 ? 4e-3 : dtype == DType::kF16 ? 5e-4 : 1e-6;
      EXPECT_TRUE(AllWithin(Attend(cache, layer, q_), Attend(zeroed, layer, q_), bound));
      EXPECT_FALSE(AllWithin(Attend(cache, layer, q_), Attend(whole, layer, q_), bound));
    }
  }
}

TEST_F(NarrowTest, BytesAreThoseOfWhatStays) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools, DType::kF16);
  ASSERT_TRUE(Feed(cache, kTokens).ok());
  const int64_t whole = cache.Bytes().payload;
  EXPECT_EQ(whole, kLayers * kHeads * kTokens * 2 * kDim * 2);
  ASSERT_TRUE(StoreAll(cache, Plan()).ok());
  const KvBytes bytes = cache.Bytes();
  const int64_t gone = (kTokens - kWide) * (kDim - kNarrow) * 2;
  EXPECT_EQ(bytes.payload, whole - kLayers * kHeads * gone);
  EXPECT_EQ(bytes.indices, kLayers * kHeads * kNarrow * 4);
  ExpectDeclaredIsAllocated(pools, cache);
  const KvBytes before = cache.Bytes();
  ASSERT_TRUE(Feed(cache, 7).ok());
  EXPECT_EQ(cache.Bytes().payload - before.payload, kLayers * kHeads * 7 * 2 * kDim * 2);
  ExpectDeclaredIsAllocated(pools, cache);
}

TEST_F(NarrowTest, EntriesGoAndForksKeepTheirs) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, kTokens).ok());
  ASSERT_TRUE(StoreAll(cache, Plan()).ok());
  const KvCache before = cache.Fork();
  std::vector<int32_t> few, most;
  for (int32_t i = 0; i < kTokens; ++i) {
    if (i % 7 == 3) few.push_back(i);
    if (i != 40 && i != 130) most.push_back(i);
  }
  const std::vector<HeadPlan> plans = {Keep(few), Keep(most)};
  ASSERT_TRUE(cache.Reduce(0, plans).ok());
  for (int64_t h = 0; h < kHeads; ++h) {
    const std::vector<int32_t>& kept = h == 0 ? few : most;
    EXPECT_EQ(cache.Positions(0, h), kept);
    EXPECT_EQ(Keys(cache, 0, h), Picked(Keys(before, 0, h), kept));
    EXPECT_EQ(Values(cache, 0, h), Picked(Values(before, 0, h), kept));
    EXPECT_EQ(std::ssize(Keys(before, 0, h)), kTokens * kDim);
  }
  ASSERT_TRUE(cache.Truncate(140).ok());
  EXPECT_EQ(cache.Positions(0, 0).back(), 136);
  const std::vector<int32_t> all = cache.Positions(1, 0);
  HeadPlan merging = Keep(all);
  const std::vector<int32_t> from = {5}, to = {6};
  const std::vector<float> weight = {0.5f};
  merging.keys = {View(from, {1}), View(to, {1}), View(weight, {1}), {}};
  const std::vector<HeadPlan> merges = {merging, Keep(all)};
  const Status refused = cache.Reduce(1, merges);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("cannot be merged"));
}

TEST_F(NarrowTest, APromptThatIsAllRecentStaysWhole) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 20).ok());
  const KvCache whole = cache.Fork();
  ASSERT_TRUE(StoreAll(cache, Plan()).ok());
  EXPECT_EQ(Keys(cache, 1, 1), Keys(whole, 1, 1));
  EXPECT_EQ(cache.Bytes().payload, whole.Bytes().payload);
}

TEST_F(NarrowTest, BadPlansAreRefusedAndChangeNothing) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, kTokens).ok());
  const std::vector<float> before = Keys(cache, 0, 0);
  const auto refusal = [&](const StorePlan& plan) {
    const Status status = cache.Store(0, plan);
    EXPECT_FALSE(status.ok());
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_THAT(refusal(PlanOf(Layout(), {.raw = true})), HasSubstr("only rotated keys"));
  NarrowKeys layout = Layout();
  layout.dim = kNarrow - 1;
  EXPECT_THAT(refusal(PlanOf(layout)), HasSubstr("narrow_keys: dim 19"));
  for (const auto& [place, value] : {std::pair{int64_t{3}, int64_t{0}}, {kNarrow - 1, kDim}}) {
    std::vector<int32_t> wrong = channels_;
    wrong[static_cast<size_t>(place)] = static_cast<int32_t>(value);
    layout = Layout();
    layout.channels = View(wrong, {kHeads, kNarrow});
    EXPECT_THAT(refusal(PlanOf(layout)), HasSubstr("channels ascend"));
  }
  EXPECT_EQ(Keys(cache, 0, 0), before);
}

TEST_F(NarrowTest, HeadsKeepTheirOwnNumbersBehindTheSinks) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, kTokens).ok());
  const std::vector<std::vector<float>> keys = {Keys(cache, 1, 0), Keys(cache, 1, 1)};
  const std::vector<std::vector<float>> values = {Values(cache, 1, 0), Values(cache, 1, 1)};
  NarrowKeys layout = Layout();
  layout.kept = {kNarrow, 3};
  layout.sinks = 70;
  ASSERT_TRUE(StoreAll(cache, PlanOf(layout)).ok());
  for (int64_t h = 0; h < kHeads; ++h) {
    std::vector<float> want = keys[static_cast<size_t>(h)];
    const auto begin = channels_.begin() + h * kNarrow;
    for (int64_t i = 70; i < kTokens - kWide; ++i) {
      for (int32_t d = 0; d < kDim; ++d) {
        if (!std::binary_search(begin, begin + layout.width(h), d)) want[i * kDim + d] = 0;
      }
    }
    EXPECT_EQ(Keys(cache, 1, h), want);
    EXPECT_EQ(Values(cache, 1, h), values[static_cast<size_t>(h)]);
  }
  EXPECT_EQ(cache.Bytes().indices, kLayers * (kNarrow + 3) * 4);
  ASSERT_TRUE(Feed(cache, 5).ok());
  ExpectDeclaredIsAllocated(pools, cache);
  ExpectAttendsAsRead(cache, 0);
  const Result<std::string> written = cache.Serialize();
  ASSERT_TRUE(written.ok());
  KvCache again = NewCache(pools);
  ASSERT_TRUE(again.Deserialize(*written).ok());
  EXPECT_EQ(Keys(again, 0, 1), Keys(cache, 0, 1));
  layout.kept = {kNarrow, 0};
  KvCache other = NewCache(pools);
  ASSERT_TRUE(Feed(other, 5).ok());
  EXPECT_THAT(other.Store(0, PlanOf(layout)).error().message, HasSubstr("heads that keep 1 .. 20"));
}

}  // namespace
}  // namespace kvgauge
