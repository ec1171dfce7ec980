// SPDX-License-Identifier: Apache-2.0
// The plain cache and what plans do to it: bits, bytes and forks.
#include "runner/kv_cache.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/strings.h"
#include "methods/layouts/plain.h"
#include "runner/cache_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPage = kKvPageEntries;

TEST_F(CacheTest, HoldsWhatWasWritten) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    CachePools pools(*ops_);
    KvCache cache = NewCache(pools, dtype);
    for (const int64_t rows : {1, 62, 5, 130, 1}) ASSERT_TRUE(Feed(cache, rows).ok());
    ASSERT_EQ(cache.tokens(), 199);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      std::vector<float> want = Rows(layer, 0, 199, 1);
      for (float& x : want) {
        if (dtype == DType::kF16) x = F16ToF32(F32ToF16(x));
        if (dtype == DType::kBF16) x = Bf16ToF32(F32ToBf16(x));
      }
      for (int64_t h = 0; h < kHeads; ++h) {
        std::vector<float> head;
        for (int64_t i = 0; i < 199; ++i) {
          const auto at = want.begin() + (i * kHeads + h) * kDim;
          head.insert(head.end(), at, at + kDim);
        }
        EXPECT_TRUE(SameBits(Keys(cache, layer, h), head));
      }
    }
  }
}

TEST_F(CacheTest, DeclaredBytesAreAllocatedBytes) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CachePools pools(*ops_);
    BlockPool& pool = pools.of(Tier::kDevice);
    KvCache cache = NewCache(pools, dtype);
    EXPECT_EQ(cache.Bytes(), KvBytes());
    ASSERT_TRUE(Feed(cache, 100).ok());
    KvBytes bytes = cache.Bytes();
    EXPECT_EQ(bytes.payload, 100 * kLayers * kHeads * 2 * kDim * SizeOf(dtype));
    EXPECT_EQ(bytes.logical(), bytes.payload);
    EXPECT_EQ(bytes.resident(), pool.used_bytes());
    EXPECT_EQ(pool.used_bytes(), 2 * kLayers * kHeads * PageBytes(dtype));

    // Ragged: layer 0 keeps 10 and 70 entries, layer 1 everything.
    std::vector<int32_t> ten(10), seventy(70);
    for (int i = 0; i < 10; ++i) ten[static_cast<size_t>(i)] = 9 * i;
    for (int i = 0; i < 70; ++i) seventy[static_cast<size_t>(i)] = i + 20;
    const std::vector<HeadPlan> plan = {Keep(ten), Keep(seventy)};
    ASSERT_TRUE(cache.Reduce(0, plan).ok());
    bytes = cache.Bytes(0);
    EXPECT_EQ(bytes.payload, 80 * 2 * kDim * SizeOf(dtype));
    EXPECT_EQ(bytes.indices, 80 * 4);
    const int64_t positions = 64 * 4 + 128 * 4;
    EXPECT_EQ(bytes.resident(), 3 * PageBytes(dtype) + positions);
    EXPECT_EQ(pool.used_bytes(), (3 + 4) * PageBytes(dtype) + positions);
    EXPECT_EQ(cache.Bytes().resident(), pool.used_bytes());
    EXPECT_EQ(cache.length(0, 0), 10);
    EXPECT_EQ(cache.length(0, 1), 70);
    EXPECT_EQ(cache.length(1, 0), 100);
  }
}

TEST_F(CacheTest, KeptEntriesKeepTheirBits) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    CachePools pools(*ops_);
    KvCache cache = NewCache(pools, dtype);
    ASSERT_TRUE(Feed(cache, 300).ok());
    Rng rng(5, 0);
    for (int round = 0; round < 6; ++round) {
      std::vector<std::vector<int32_t>> kept(kHeads);
      std::vector<std::vector<float>> keys, values;
      std::vector<std::vector<int32_t>> positions;
      std::vector<HeadPlan> plan;
      for (int64_t h = 0; h < kHeads; ++h) {
        auto& one = kept[static_cast<size_t>(h)];
        // A prefix stays, then holes.
        const int64_t length = cache.length(0, h);
        for (int32_t i = 0; i < length; ++i) {
          if (i < 70 * h || rng.NextBelow(8) > 0) one.push_back(i);
        }
        keys.push_back(Picked(Keys(cache, 0, h), one));
        values.push_back(Picked(Values(cache, 0, h), one));
        std::vector<int32_t> old = cache.Positions(0, h), now;
        for (const int32_t i : one) now.push_back(old[static_cast<size_t>(i)]);
        positions.push_back(now);
      }
      for (const auto& one : kept) plan.push_back(Keep(one));
      ASSERT_TRUE(cache.Reduce(0, plan).ok());
      for (int64_t h = 0; h < kHeads; ++h) {
        EXPECT_TRUE(SameBits(Keys(cache, 0, h), keys[static_cast<size_t>(h)]));
        EXPECT_TRUE(SameBits(Values(cache, 0, h), values[static_cast<size_t>(h)]));
        EXPECT_EQ(cache.Positions(0, h), positions[static_cast<size_t>(h)]);
      }
      ASSERT_TRUE(Feed(cache, 3, 7).ok());
      EXPECT_EQ(cache.Positions(0, 0).back(), cache.tokens() - 1);
    }
  }
}

// Everything kept: the same bits and no more bytes.
TEST_F(CacheTest, KeepingAllChangesNothing) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools, DType::kBF16);
  ASSERT_TRUE(Feed(cache, 130).ok());
  const KvBytes before = cache.Bytes();
  const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3);
  const std::vector<float> want = Attend(cache, 1, q);
  std::vector<int32_t> all(130);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<HeadPlan> plan = {Keep(all), Keep(all)};
  ASSERT_TRUE(cache.Reduce(1, plan).ok());
  EXPECT_EQ(cache.Bytes(), before);
  EXPECT_TRUE(SameBits(Attend(cache, 1, q), want));
}

TEST_F(CacheTest, ForksDoNotSeeEachOther) {
  CachePools pools(*ops_);
  BlockPool& pool = pools.of(Tier::kDevice);
  KvCache root = NewCache(pools, DType::kF16);
  ASSERT_TRUE(Feed(root, 100).ok());
  const int64_t alone = pool.used_bytes();
  const std::vector<float> keys = Keys(root, 1, 1), values = Values(root, 1, 1);

  KvCache fork = root.Fork();
  EXPECT_EQ(pool.used_bytes(), alone);
  ASSERT_TRUE(Feed(fork, 1, 9).ok());
  // The last page of each stream, and that alone, was copied.
  EXPECT_EQ(pool.used_bytes(), alone + kLayers * kHeads * PageBytes(DType::kF16));
  EXPECT_EQ(fork.Bytes().resident(), alone);
  ASSERT_TRUE(Feed(root, 60, 10).ok());
  ASSERT_TRUE(Feed(fork, 3, 9).ok());
  const auto begins_as = [](std::vector<float> rows, const std::vector<float>& want) {
    rows.resize(want.size());
    return SameBits(rows, want);
  };
  EXPECT_TRUE(begins_as(Keys(root, 1, 1), keys));
  EXPECT_TRUE(begins_as(Keys(fork, 1, 1), keys));
  EXPECT_TRUE(begins_as(Values(fork, 1, 1), values));
  EXPECT_EQ(root.tokens(), 160);
  EXPECT_EQ(fork.tokens(), 104);

  // A fork that is compressed gives back its own, not what others hold.
  {
    const int64_t before = pool.used_bytes();
    KvCache small = root.Fork();
    const std::vector<int32_t> few = {3, 90};
    const std::vector<HeadPlan> plan = {Keep(few), Keep(few)};
    for (int64_t layer = 0; layer < kLayers; ++layer) ASSERT_TRUE(small.Reduce(layer, plan).ok());
    EXPECT_EQ(pool.used_bytes(), before + small.Bytes().resident());
    EXPECT_EQ(small.Bytes().payload, kLayers * kHeads * 2 * 2 * kDim * 2);
  }
  fork = NewCache(pools);
  root = NewCache(pools);
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_EQ(pool.resident_bytes(), 0);
}

// Evicting and hiding are the same to attention.
TEST_F(CacheTest, EvictedEntriesAreAsIfHidden) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 200).ok());
  const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3);
  std::vector<std::vector<int32_t>> kept(kHeads);
  std::vector<int64_t> words(static_cast<size_t>(kQueryHeads * 4));
  Rng rng(3, 0);
  for (int64_t h = 0; h < kHeads; ++h) {
    for (int32_t i = 0; i < 200; ++i) {
      if (rng.NextBelow(3) != 0 && i != 199) continue;
      kept[static_cast<size_t>(h)].push_back(i);
      for (int64_t g = 2 * h; g < 2 * h + 2; ++g) {
        words[static_cast<size_t>(g * 4 + i / 64)] |= int64_t{1} << (i % 64);
      }
    }
  }
  KvCache hidden = cache.Fork();
  hidden.SetRead(0, Tensor(words.data(), DType::kI64, {kQueryHeads, 4}));
  const std::vector<HeadPlan> plan = {Keep(kept[0]), Keep(kept[1])};
  ASSERT_TRUE(cache.Reduce(0, plan).ok());
  const std::vector<float> got = Attend(cache, 0, q), want = Attend(hidden, 0, q);
  EXPECT_TRUE(AllWithin(got, want, 1e-5));
  hidden.SetRead(0, {});
  EXPECT_FALSE(AllWithin(Attend(hidden, 0, q), want, 1e-3));
}

// A bias of all heads is a log weight; one of a single head is that head's alone. Slots before the
// first entry do not count.
TEST_F(CacheTest, BiasesAreThoseOfEachHead) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 200).ok());
  const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3);
  std::vector<int32_t> kept;
  for (int32_t i = 5; i < 200; ++i) kept.push_back(i);
  const std::vector<HeadPlan> plan = {Keep(kept), Keep(kept)};
  ASSERT_TRUE(cache.Reduce(0, plan).ok());
  const auto n = std::ssize(kept);
  std::vector<float> bias(static_cast<size_t>(kQueryHeads * n));
  std::vector<HeadPlan> weighted;
  std::vector<int32_t> all(kept.size());
  std::iota(all.begin(), all.end(), 0);
  for (int64_t h = 0; h < kHeads; ++h) {
    const std::vector<float> own = RandomValues(n, 90 + static_cast<uint64_t>(h));
    for (int64_t g = 2 * h; g < 2 * h + 2; ++g) std::copy(own.begin(), own.end(), &bias[g * n]);
  }
  for (int64_t h = 0; h < kHeads; ++h) {
    weighted.push_back(Keep(all));
    weighted.back().log_weight = View(bias, {kQueryHeads, n})[2 * h];
  }
  const std::vector<int64_t> words(static_cast<size_t>(kQueryHeads * 4), -1);
  const Tensor every(const_cast<int64_t*>(words.data()), DType::kI64, {kQueryHeads, 4});
  KvCache twin = cache.Fork();
  const std::vector<float> plain = Attend(cache, 0, q);
  cache.SetRead(0, every, View(bias, {kQueryHeads, n}));
  const std::vector<float> got = Attend(cache, 0, q);
  ASSERT_TRUE(twin.Reduce(0, weighted).ok());
  EXPECT_TRUE(AllWithin(got, Attend(twin, 0, q), 1e-5));
  EXPECT_FALSE(AllWithin(got, plain, 1e-3));
  // All but entry 7 as good as gone, for query head 1.
  std::fill(bias.begin(), bias.end(), 0.0f);
  std::fill(bias.begin() + n, bias.begin() + 2 * n, -80.0f);
  bias[static_cast<size_t>(n + 7)] = 0;
  cache.SetRead(0, every, View(bias, {kQueryHeads, n}));
  const std::vector<float> one = Attend(cache, 0, q), values = Values(cache, 0, 0);
  for (int64_t g = 0; g < kQueryHeads; ++g) {
    const std::vector<float> own(one.begin() + g * kDim, one.begin() + (g + 1) * kDim);
    const auto* from = g == 1 ? &values[7 * kDim] : &plain[static_cast<size_t>(g * kDim)];
    EXPECT_TRUE(AllWithin(own, std::vector<float>(from, from + kDim), 1e-5)) << g;
  }
  cache.SetRead(0, {});
  EXPECT_EQ(Attend(cache, 0, q), plain);
}

TEST_F(CacheTest, TwoNumbersFollowTheirEntries) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 80).ok());
  std::vector<float> numbers(320);
  std::iota(numbers.begin(), numbers.end(), 1.0f);
  ASSERT_TRUE(cache.KeepScores(1, View(numbers, {2, 2, 80})).ok());
  const std::vector<int32_t> one = {2, 30}, two = {5, 6, 79};
  const std::vector<HeadPlan> plan = {Keep(one), Keep(two)};
  ASSERT_TRUE(cache.Reduce(1, plan).ok());
  ASSERT_TRUE(Feed(cache, 1).ok());
  std::vector<float> got(16, -1.0f);
  cache.ReadScores(1, View(got, {2, 2, 4}));
  EXPECT_EQ(got,
            (std::vector<float>{3, 31, 0, 0, 86, 87, 160, 0, 163, 191, 0, 0, 246, 247, 320, 0}));
  EXPECT_EQ(cache.Bytes(1).biases, 2 * 7 * 4);
  EXPECT_EQ(cache.Bytes().resident(), pools.of(Tier::kDevice).used_bytes());
  const Result<std::string> bytes = cache.Serialize();
  ASSERT_TRUE(bytes.ok());
  KvCache again = NewCache(pools);
  ASSERT_TRUE(again.Deserialize(*bytes).ok());
  std::vector<float> read(16, -1.0f);
  again.ReadScores(1, View(read, {2, 2, 4}));
  EXPECT_EQ(read, got);
  EXPECT_EQ(*again.Serialize(), *bytes);
}

TEST_F(CacheTest, ScoresFollowTheirEntries) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 80).ok());
  std::vector<float> scores(160);
  std::iota(scores.begin(), scores.end(), 1.0f);
  EXPECT_EQ(cache.kept_scores(1), 0);
  ASSERT_TRUE(cache.KeepScores(1, View(scores, {2, 80})).ok());
  EXPECT_EQ(cache.kept_scores(1), 1);
  const std::vector<int32_t> one = {2, 30}, two = {5, 6, 79};
  const std::vector<HeadPlan> plan = {Keep(one), Keep(two)};
  ASSERT_TRUE(cache.Reduce(1, plan).ok());
  ASSERT_TRUE(Feed(cache, 1).ok());
  std::vector<float> got(8, -1.0f);
  cache.ReadScores(1, View(got, {2, 4}));
  EXPECT_EQ(got, (std::vector<float>{3, 31, 0, 0, 86, 87, 160, 0}));
  EXPECT_EQ(cache.Bytes(1).biases, 7 * 4);
  EXPECT_EQ(cache.Bytes().resident(), pools.of(Tier::kDevice).used_bytes());
}

TEST_F(CacheTest, FullPoolIsAnErrorThatChangesNothing) {
  CachePools::Limits limits;
  limits.device_bytes = 3 * kLayers * kHeads * PageBytes(DType::kF32) + 4096;
  CachePools pools(*ops_, limits);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 2 * kPage).ok());
  const std::vector<float> keys = Keys(cache, 1, 1);
  const int64_t used = pools.of(Tier::kDevice).used_bytes();
  const Status status = cache.Append(2 * kPage);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kResource);
  EXPECT_THAT(status.error().message, HasSubstr("device memory for the cache"));
  EXPECT_EQ(cache.tokens(), 2 * kPage);
  EXPECT_EQ(pools.of(Tier::kDevice).used_bytes(), used);
  EXPECT_TRUE(SameBits(Keys(cache, 1, 1), keys));
  EXPECT_TRUE(Feed(cache, kPage).ok());
}

TEST_F(CacheTest, BadPlansAreNamed) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 20).ok());
  const std::vector<int32_t> good = {1, 2}, twice = {1, 1}, beyond = {1, 20};
  std::vector<HeadPlan> plan = {Keep(good), Keep(twice)};
  EXPECT_THAT(cache.Reduce(1, plan).error().message,
              HasSubstr("layer 1: plan for KV head 1: entry 1 after entry 1"));
  plan[1] = Keep(beyond);
  EXPECT_THAT(cache.Reduce(1, plan).error().message, HasSubstr("entry 20 after entry 1 of 20"));
  EXPECT_EQ(cache.length(1, 0), 20);
}

TEST_F(CacheTest, TruncateForgetsTheNewest) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools, DType::kF16);
  ASSERT_TRUE(Feed(cache, 100).ok());
  std::vector<int32_t> odd;
  for (int32_t i = 1; i < 100; i += 2) odd.push_back(i);
  const std::vector<HeadPlan> plan = {Keep(odd), Keep(odd)};
  ASSERT_TRUE(cache.Reduce(1, plan).ok());
  const KvCache want = cache.Fork();
  ASSERT_TRUE(Feed(cache, 50, 4).ok());
  ASSERT_TRUE(cache.Truncate(100).ok());
  EXPECT_EQ(cache.tokens(), 100);
  EXPECT_EQ(cache.Bytes(), want.Bytes());
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_TRUE(SameBits(Keys(cache, layer, 1), Keys(want, layer, 1)));
    EXPECT_EQ(cache.Positions(layer, 1), want.Positions(layer, 1));
  }
  ASSERT_TRUE(cache.Truncate(31).ok());
  EXPECT_EQ(cache.length(0, 0), 31);
  EXPECT_EQ(cache.length(1, 0), 15);
}

// A fork that holds pages too changes neither the bits nor the bytes of what is kept.
TEST_F(CacheTest, CompanyDoesNotShow) {
  // 30 entries go, of pages that a fork holds too: a stretch behind four sinks, or every third
  // behind 70. With a merge, the first of them goes to an entry of the first page.
  for (const bool stretch : {true, false}) {
    for (const bool merges : {false, true}) {
      SCOPED_TRACE(StrCat(stretch ? "one stretch" : "here and there", merges ? ", merged" : ""));
      const int32_t first = stretch ? 4 : 70;
      std::vector<int32_t> once, kept;
      for (int32_t i = 0; i < 200; ++i) {
        if (i != 130) once.push_back(i);
      }
      for (int32_t i = 0; i < 239; ++i) {
        const bool goes = stretch ? i - first < 30 : (i - first) % 3 == 0 && i - first < 90;
        if (i < first || !goes) kept.push_back(i);
      }
      const std::vector<int32_t> from = {first}, to = {2};
      const std::vector<float> weight = {0.5f};
      HeadPlan plan = Keep(kept);
      if (merges) {
        plan.values = {
            .from = View(from, {1}), .to = View(to, {1}), .weight = View(weight, {1}), .self = {}};
      }
      const std::vector<HeadPlan> before = {Keep(once), Keep(once)}, after = {plan, Keep(kept)};
      CachePools pools(*ops_);
      KvCache alone = NewCache(pools), company = NewCache(pools);
      std::vector<KvCache> sharers;
      std::vector<std::vector<float>> held;
      for (KvCache* one : {&alone, &company}) {
        ASSERT_TRUE(Feed(*one, 200).ok());
        for (int64_t layer = 0; layer < kLayers; ++layer) {
          ASSERT_TRUE(one->Reduce(layer, before).ok());
        }
        if (one == &company) {
          sharers.push_back(company.Fork());
          for (int64_t layer = 0; layer < kLayers; ++layer) held.push_back(Keys(*one, layer, 1));
        }
        ASSERT_TRUE(Feed(*one, 40).ok());
        for (int64_t layer = 0; layer < kLayers; ++layer) {
          ASSERT_TRUE(one->Reduce(layer, after).ok());
        }
      }
      EXPECT_EQ(company.Bytes(), alone.Bytes());
      const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3);
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        EXPECT_EQ(company.Layer(layer)[0].segments[0].skip, alone.Layer(layer)[0].segments[0].skip);
        EXPECT_TRUE(SameBits(Values(company, layer, 0), Values(alone, layer, 0)));
        EXPECT_TRUE(SameBits(Attend(company, layer, q), Attend(alone, layer, q)));
        EXPECT_TRUE(SameBits(Keys(sharers[0], layer, 1), held[static_cast<size_t>(layer)]));
      }
      const Result<std::string> one = alone.Serialize(), other = company.Serialize();
      ASSERT_TRUE(one.ok() && other.ok());
      EXPECT_TRUE(*one == *other);
    }
  }
}

// A window that moves on drops one entry a step, the one behind the sinks. A cache whose entries
// have weights does not do that in place, so it shows what each step should leave; these weights
// change nothing.
TEST_F(CacheTest, MovingWindows) {
  constexpr int32_t kHeld = 150, kSinks = 4;
  std::vector<int32_t> kept(kHeld);
  std::iota(kept.begin(), kept.begin() + kSinks, 0);
  std::iota(kept.begin() + kSinks, kept.end(), kSinks + 1);
  const std::vector<float> zeros(kHeld);
  const StorePlan slots = PlanOf(Plain(), {.raw = true, .position = PositionPolicy::kSlot});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const bool by_slot : {false, true}) {
      SCOPED_TRACE(std::string(NameOf(dtype)) + (by_slot ? ", turned by slot" : ""));
      CachePools pools(*ops_);
      KvCache cache = NewCache(pools, dtype), gathered = NewCache(pools, dtype);
      int64_t most_skipped = 0;
      for (KvCache* either : {&cache, &gathered}) {
        ASSERT_TRUE(Feed(*either, kHeld).ok());
        for (int64_t layer = 0; layer < kLayers && by_slot; ++layer) {
          ASSERT_TRUE(either->Store(layer, slots).ok());
        }
      }
      const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3);
      const double bound = dtype == DType::kF32 ? 1e-5 : 2e-2;
      for (int step = 0; step < 140; ++step) {
        for (KvCache* either : {&cache, &gathered}) {
          ASSERT_TRUE(Feed(*either, 1).ok());
          HeadPlan one = Keep(kept);
          if (either == &gathered) one.log_weight = View(zeros, {kHeld});
          const std::vector<HeadPlan> plan = {one, one};
          for (int64_t layer = 0; layer < kLayers; ++layer) {
            ASSERT_TRUE(either->Reduce(layer, plan).ok());
          }
        }
        for (int64_t layer = 0; layer < kLayers; ++layer) {
          ASSERT_TRUE(SameBits(Keys(cache, layer, 1), Keys(gathered, layer, 1))) << step;
          ASSERT_TRUE(SameBits(Values(cache, layer, 0), Values(gathered, layer, 0))) << step;
          ASSERT_EQ(cache.Positions(layer, 1), gathered.Positions(layer, 1));
          ASSERT_TRUE(AllWithin(Attend(cache, layer, q), Attend(gathered, layer, q), bound));
        }
        most_skipped = std::max(most_skipped, cache.Layer(0)[0].segments[0].skip);
        ASSERT_EQ(gathered.Layer(0)[0].segments[0].skip, 0);
        // No more than one page beside what entries need.
        ASSERT_LE(cache.Bytes().payload, gathered.Bytes().payload);
        ASSERT_LE(cache.Bytes().slack - gathered.Bytes().slack,
                  kLayers * kHeads * PageBytes(dtype));
      }
      EXPECT_EQ(most_skipped, kKvPageEntries - 1);

      // The bytes say which slots are skipped, so that what comes after has the same bits.
      KvCache again = NewCache(pools, dtype);
      const Result<std::string> bytes = cache.Serialize();
      ASSERT_TRUE(bytes.ok() && again.Deserialize(*bytes).ok());
      EXPECT_EQ(again.Bytes(), cache.Bytes());
      KvCache forked = cache.Fork();
      for (KvCache* one : {&cache, &again, &forked}) {
        ASSERT_TRUE(Feed(*one, 1).ok());
        const std::vector<HeadPlan> plan = {Keep(kept), Keep(kept)};
        for (int64_t layer = 0; layer < kLayers; ++layer) {
          ASSERT_TRUE(one->Reduce(layer, plan).ok());
        }
      }
      EXPECT_TRUE(SameBits(Attend(again, 1, q), Attend(cache, 1, q)));
      EXPECT_TRUE(SameBits(Keys(forked, 1, 1), Keys(cache, 1, 1)));

      // Reading some entries: bits are of entries, whatever their slots.
      ASSERT_TRUE(Feed(gathered, 1).ok());
      const std::vector<HeadPlan> plan = {Keep(kept), Keep(kept)};
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        ASSERT_TRUE(gathered.Reduce(layer, plan).ok());
      }
      std::vector<int64_t> words;
      for (int64_t h = 0; h < kQueryHeads; ++h) {
        for (const int64_t word : {int64_t{0x0123456789abcdef}, int64_t{-1}, int64_t{0x2a5}}) {
          words.push_back(word);
        }
      }
      std::vector<std::vector<float>> outs;
      for (KvCache* one : {&cache, &gathered}) {
        one->SetRead(0, Tensor(words.data(), DType::kI64, {kQueryHeads, 3}));
        outs.push_back(Attend(*one, 0, q));
        one->SetRead(0, {});
        EXPECT_FALSE(SameBits(outs.back(), Attend(*one, 0, q)));
      }
      EXPECT_TRUE(AllWithin(outs[0], outs[1], bound));

      // What comes in another way ends the skipping.
      std::vector<int32_t> odd;
      for (int32_t i = 1; i < kHeld; i += 2) odd.push_back(i);
      const std::vector<HeadPlan> half = {Keep(odd), Keep(odd)};
      const std::vector<float> before = Keys(cache, 0, 1);
      ASSERT_TRUE(cache.Reduce(0, half).ok());
      EXPECT_TRUE(SameBits(Values(cache, 0, 1), Picked(Values(gathered, 0, 1), odd)));
      EXPECT_TRUE(by_slot || SameBits(Keys(cache, 0, 1), Picked(before, odd)));
    }
  }
}

TEST_F(CacheTest, BytesBringItBack) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    CachePools pools(*ops_);
    KvCache cache = NewCache(pools, dtype);
    ASSERT_TRUE(Feed(cache, 90).ok());
    const std::vector<int32_t> one = {2, 30}, two = {5, 6, 79};
    const std::vector<float> weight = {0.5f, 1.5f}, scores(180, 2.5f);
    std::vector<HeadPlan> plan = {Keep(one), Keep(two)};
    plan[0].log_weight = View(weight, {2});
    ASSERT_TRUE(cache.KeepScores(1, View(scores, {2, 90})).ok());
    ASSERT_TRUE(cache.Reduce(1, plan).ok());
    const Result<std::string> bytes = cache.Serialize();
    ASSERT_TRUE(bytes.ok());
    KvCache again = NewCache(pools, dtype);
    ASSERT_TRUE(again.Deserialize(*bytes).ok());
    for (KvCache* either : {&cache, &again}) ASSERT_TRUE(Feed(*either, 5).ok());
    EXPECT_EQ(again.tokens(), 95);
    EXPECT_EQ(again.Bytes(), cache.Bytes());
    EXPECT_EQ(*again.Serialize(), *cache.Serialize());
    const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      EXPECT_TRUE(SameBits(Attend(again, layer, q), Attend(cache, layer, q)));
      EXPECT_EQ(again.Positions(layer, 1), cache.Positions(layer, 1));
    }
    // Every cut is refused, and so are bytes that lie.
    KvCache empty = NewCache(pools, dtype);
    for (size_t size = 0; size < bytes->size(); size += 1 + size / 8) {
      EXPECT_FALSE(empty.Deserialize(std::string_view(*bytes).substr(0, size)).ok()) << size;
    }
    for (size_t at = 9; at < 105; at += 8) {  // numbers before the first entries
      std::string wrong = *bytes;
      wrong[at + 6] = '\x7f';
      EXPECT_FALSE(empty.Deserialize(wrong).ok()) << at;
    }
    EXPECT_THAT(empty.Deserialize(*bytes + "x").error().message,
                HasSubstr("1 follow what they hold; expected none"));
    EXPECT_EQ(empty.Bytes(), KvBytes());
  }
}

TEST_F(CacheTest, RawKeysAreTurnedBack) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  const ModelConfig config = CacheConfig(kLayers, kQueryHeads, kHeads, kDim);
  const RopeFrequencies frequencies = ComputeRope(*config.rope, 4096);
  ASSERT_TRUE(cache.Append(50).ok());
  const std::vector<float> raw = Rows(0, 0, 50, 1);
  std::vector<float> turned = raw;
  for (int64_t i = 0; i < 50; ++i) {
    for (int64_t h = 0; h < kHeads; ++h) {
      float* x = &turned[static_cast<size_t>((i * kHeads + h) * kDim)];
      for (int64_t p = 0; p < kDim / 2; ++p) {
        const double angle = static_cast<double>(i) * frequencies.inverse[static_cast<size_t>(p)];
        const double a = x[p], b = x[p + kDim / 2];
        x[p] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
        x[p + kDim / 2] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
      }
    }
  }
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    cache.Write(layer, View(turned, {50, kHeads, kDim}), View(raw, {50, kHeads, kDim}));
  }
  std::vector<float> got(20 * kDim), want;
  cache.ReadRawKeys(0, 1, 30, View(got, {20, kDim}));
  for (int64_t i = 30; i < 50; ++i) {
    const auto at = raw.begin() + (i * kHeads + 1) * kDim;
    want.insert(want.end(), at, at + kDim);
  }
  EXPECT_TRUE(AllWithin(got, want, 1e-4));
}

}  // namespace
}  // namespace kvgauge
