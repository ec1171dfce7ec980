// SPDX-License-Identifier: Apache-2.0
// Entries in classes: read, attended to, moved, evicted, counted, written and refused.
#include "methods/layouts/classes.h"

#include <gmock/gmock.h>

#include <cstring>

#include "core/strings.h"
#include "runner/cache_fixture.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ClassesTest : public CacheTest {
 protected:
  static constexpr int64_t kWaiting = 10;

  static KvCodec Codec(KvSide side, int bits, CodeAxis axis, DType dtype) {
    KvCodec codec;
    codec.side = side;
    codec.dim = kDim;
    codec.dtype = dtype;
    if (bits == 0) return codec;
    codec.kind = KvCodecKind::kAffine;
    codec.bits = bits;
    codec.axis = axis;
    codec.group = axis == CodeAxis::kChannel ? 16 : kDim;
    return codec;
  }

  // Uncoded, 4 bits along an entry, and 2 bits of which keys are along channels.
  static Classes Layout(DType dtype = DType::kF32) {
    Classes layout;
    for (const int bits : {0, 4, 2}) {
      Classes::Class one;
      one.keys =
          Codec(KvSide::kKeys, bits, bits == 2 ? CodeAxis::kChannel : CodeAxis::kToken, dtype);
      one.values = Codec(KvSide::kValues, bits, CodeAxis::kToken, dtype);
      layout.classes.push_back(one);
    }
    layout.waiting = kWaiting;
    return layout;
  }
  static Status StoreAll(KvCache& cache, const Classes& layout) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      KVG_TRY(cache.Store(layer, PlanOf(layout)));
    }
    return {};
  }
  // Entry i of both heads to class of(i).
  template <class Of>
  static Status Put(KvCache& cache, int64_t layer, const Of& of) {
    const int64_t n = cache.length(layer, 0);
    std::vector<int32_t> classes;
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < n; ++i) classes.push_back(of(i));
    }
    return cache.Classify(layer, View(classes, {kHeads, n}));
  }

  // A cache of 100 entries: every third uncoded, every third in 4 bits, the others in 2.
  static KvCache Third(CachePools& pools, const Classes& layout, DType dtype = DType::kF32) {
    KvCache cache = NewCache(pools, dtype);
    EXPECT_TRUE(Feed(cache, 100).ok());
    EXPECT_TRUE(StoreAll(cache, layout).ok());
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      EXPECT_TRUE(Put(cache, layer, [](int64_t i) { return static_cast<int32_t>(i % 3); }).ok());
    }
    return cache;
  }
};

TEST_F(ClassesTest, EntriesComeClassByClassAndAreWhatTheirCodecMakesThem) {
  CachePools pools(*ops_);
  KvCache plain = NewCache(pools);
  ASSERT_TRUE(Feed(plain, 100).ok());
  const std::vector<float> whole = Keys(plain, 1, 0), whole_values = Values(plain, 1, 0);
  KvCache cache = Third(pools, Layout());
  const std::vector<int32_t> positions = cache.Positions(1, 0);
  ASSERT_EQ(positions.size(), 100u);
  std::vector<int32_t> want;
  for (int32_t c = 0; c < 3; ++c) {
    for (int32_t i = c; i < 100; i += 3) want.push_back(i);
  }
  EXPECT_EQ(positions, want);
  EXPECT_EQ(cache.InClasses(1, 0), 100);
  const std::vector<float> keys = Keys(cache, 1, 0), values = Values(cache, 1, 0);
  const std::vector<float> in_order = Picked(whole, want);
  const std::vector<float> values_in_order = Picked(whole_values, want);
  const auto error = [&](const std::vector<float>& got, const std::vector<float>& right,
                         int64_t from, int64_t to) {
    double most = 0;
    for (int64_t i = from * kDim; i < to * kDim; ++i) {
      most = std::max(
          most, std::abs(double{got[static_cast<size_t>(i)]} - right[static_cast<size_t>(i)]));
    }
    return most;
  };
  EXPECT_EQ(error(keys, in_order, 0, 34), 0);
  EXPECT_GT(error(keys, in_order, 34, 67), 0);
  EXPECT_LT(error(keys, in_order, 34, 67), 2.5);  // half a step of loud entries
  EXPECT_GT(error(keys, in_order, 67, 99), error(keys, in_order, 34, 67));
  // Of 33 keys in 2 bits 32 fill two groups; their values are coded one by one.
  EXPECT_EQ(error(keys, in_order, 99, 100), 0);
  EXPECT_GT(error(values, values_in_order, 99, 100), 0);
  for (int64_t layer = 0; layer < kLayers; ++layer) ExpectAttendsAsRead(cache, layer);
  ASSERT_TRUE(Feed(cache, 5, 9).ok());
  EXPECT_EQ(cache.InClasses(0, 1), 100);
  ExpectAttendsAsRead(cache, 1);
}

TEST_F(ClassesTest, EntriesFallFromClassToClassAndNewOnesJoin) {
  CachePools pools(*ops_);
  KvCache cache = Third(pools, Layout());
  EXPECT_FALSE(cache.ClassesAreDue(0));
  ASSERT_TRUE(Feed(cache, kWaiting - 1, 9).ok());
  EXPECT_FALSE(cache.ClassesAreDue(0));
  ASSERT_TRUE(Feed(cache, 1, 9).ok());
  EXPECT_TRUE(cache.ClassesAreDue(0));
  const std::vector<float> before = Keys(cache, 0, 1);
  // New entries join the second class and stay behind what is there, which keeps its codes.
  ASSERT_TRUE(Put(cache, 0, [](int64_t i) { return i < 100 ? -1 : i < 106 ? 1 : -1; }).ok());
  EXPECT_EQ(cache.InClasses(0, 0), 106);
  EXPECT_FALSE(cache.ClassesAreDue(0));
  std::vector<float> after = Keys(cache, 0, 1);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 67 * kDim, after.begin()));
  EXPECT_TRUE(std::equal(before.begin() + 67 * kDim, before.begin() + 100 * kDim,
                         after.begin() + 73 * kDim));
  EXPECT_TRUE(std::equal(before.begin() + 106 * kDim, before.end(), after.begin() + 106 * kDim));
  ExpectAttendsAsRead(cache, 0);
  // The first class falls to the last: its entries stand among the others by position.
  ASSERT_TRUE(Put(cache, 0, [](int64_t i) { return i < 34 ? 2 : -1; }).ok());
  const std::vector<int32_t> positions = cache.Positions(0, 1);
  EXPECT_THAT(std::vector<int32_t>(positions.begin() + 39, positions.begin() + 44),
              ElementsAre(0, 2, 3, 5, 6));
  EXPECT_EQ(positions.back(), 109);
  ExpectAttendsAsRead(cache, 0);
}

TEST_F(ClassesTest, ScalesOfChannelsAreUndoneWhenEntriesAreRead) {
  for (const bool wide : {false, true}) {
    CachePools pools(*ops_);
    Classes layout = Layout();
    std::vector<float> scales;
    for (int64_t i = 0; i < kHeads * kDim; ++i) scales.push_back(wide ? 0.01f + 0.25f * i : 1.0f);
    layout.key_scales = View(scales, {kHeads, kDim});
    layout.value_scales = View(scales, {kHeads, kDim});
    KvCache cache = Third(pools, layout);
    KvCache without = Third(pools, Layout());
    // Scales of 1 change nothing; others change the codes, not by much.
    EXPECT_EQ(Keys(cache, 0, 1) == Keys(without, 0, 1), !wide);
    const std::vector<float> scaled = Keys(cache, 0, 1), unscaled = Keys(without, 0, 1);
    EXPECT_TRUE(std::equal(scaled.begin(), scaled.begin() + 34 * kDim, unscaled.begin()));
    EXPECT_TRUE(AllWithin(Values(cache, 0, 1), Values(without, 0, 1), 30));
    ExpectAttendsAsRead(cache, 0);
    const KvBytes bytes = cache.Bytes();
    EXPECT_EQ(bytes.scales - without.Bytes().scales, kLayers * 2 * kHeads * kDim * 4);
    // What is moved is what was read.
    const std::vector<float> before = Values(cache, 1, 0);
    ASSERT_TRUE(Put(cache, 1, [](int64_t i) { return i >= 34 && i < 67 ? 0 : -1; }).ok());
    std::vector<int32_t> all(100);
    for (int32_t i = 0; i < 100; ++i) all[static_cast<size_t>(i)] = i;
    const std::vector<int32_t> positions = cache.Positions(1, 0);
    const std::vector<float> after = Values(cache, 1, 0);
    for (int64_t i = 0; i < 67; ++i) {
      const int32_t at = positions[static_cast<size_t>(i)];
      const int64_t was = at % 3 == 0 ? at / 3 : 34 + at / 3;
      EXPECT_TRUE(std::equal(after.begin() + i * kDim, after.begin() + (i + 1) * kDim,
                             before.begin() + was * kDim))
          << i;
    }
  }
}

// Behind a rotation, with ranges cut: what is read is near what was there, cut or not, and bytes
// bring it back.
TEST_F(ClassesTest, TurnedEntriesComeBackAndRangesAreCut) {
  CachePools pools(*ops_);
  const std::vector<float> scales(kHeads * kDim, 0.5f);
  std::vector<float> errors;
  for (const float clip : {1.0f, 0.5f}) {
    Classes layout = Layout();
    layout.classes.pop_back();
    layout.classes[1].keys.bits = layout.classes[1].values.bits = 8;
    layout.classes[1].values.clip = clip;
    layout.classes[1].values.exact_scale = clip < 1;
    layout.turns_keys = layout.turns_values = true;
    layout.value_scales = View(scales, {kHeads, kDim});
    KvCache cache = NewCache(pools);
    ASSERT_TRUE(Feed(cache, 60).ok());
    const std::vector<float> keys = Keys(cache, 1, 0), values = Values(cache, 1, 0);
    ASSERT_TRUE(StoreAll(cache, layout).ok());
    for (int64_t l = 0; l < kLayers; ++l) {
      ASSERT_TRUE(Put(cache, l, [](int64_t i) { return i < 40 ? 1 : -1; }).ok());
    }
    EXPECT_TRUE(AllWithin(Keys(cache, 1, 0), keys, 0.05));
    EXPECT_NE(Keys(cache, 1, 0), keys);
    double most = 0;
    const std::vector<float> held = Values(cache, 1, 0);
    for (size_t i = 0; i < held.size(); ++i) {
      most = std::max(most, std::abs(double{held[i]} - values[i]));
    }
    errors.push_back(static_cast<float>(most));
    for (int64_t l = 0; l < kLayers; ++l) ExpectAttendsAsRead(cache, l);
    EXPECT_GE(cache.Bytes().slack, 0);
    const Result<std::string> bytes = cache.Serialize();
    ASSERT_TRUE(bytes.ok());
    KvCache again = NewCache(pools);
    ASSERT_TRUE(again.Deserialize(*bytes).ok());
    EXPECT_EQ(Values(again, 1, 0), held);
    EXPECT_EQ(*again.Serialize(), *bytes);
    for (KvCache* one : {&cache, &again}) {  // both go on alike
      ASSERT_TRUE(Feed(*one, 20).ok());
      for (int64_t l = 0; l < kLayers; ++l) {
        ASSERT_TRUE(Put(*one, l, [](int64_t i) { return i < 40 ? -1 : 1; }).ok());
      }
    }
    EXPECT_EQ(Values(again, 1, 0), Values(cache, 1, 0));
    layout.classes[1].keys.clip = 1.5f;
    KvCache other = NewCache(pools);
    EXPECT_THAT(other.Store(0, PlanOf(layout)).error().message, HasSubstr("clip 1.5"));
  }
  EXPECT_LT(errors[0], 0.05f);
  EXPECT_GT(errors[1], 0.5f);
}

// One bit a number, whose two levels are those of a head's channel.
TEST_F(ClassesTest, CodewordsAreThoseOfAHead) {
  std::vector<float> words;
  for (int64_t i = 0; i < kHeads * kDim; ++i) {
    words.push_back(-0.25f - 0.01f * static_cast<float>(i));
    words.push_back(0.5f + 0.01f * static_cast<float>(i));
  }
  Classes layout;
  layout.classes.resize(2);
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    KvCodec codec = Codec(side, 0, CodeAxis::kToken, DType::kF32);
    (side == KvSide::kKeys ? layout.classes[1].keys : layout.classes[1].values) = codec;
    codec.kind = KvCodecKind::kVectors;
    codec.bits = 1;
    codec.group = 1;
    (side == KvSide::kKeys ? layout.classes[0].keys : layout.classes[0].values) = codec;
  }
  layout.waiting = kWaiting;
  const Classes without = layout;
  layout.classes[0].key_table = View(words, {kHeads, 2 * kDim});
  layout.classes[0].value_table = layout.classes[0].key_table;
  CachePools pools(*ops_);
  KvCache plain = NewCache(pools), cache = NewCache(pools);
  for (KvCache* one : {&plain, &cache}) ASSERT_TRUE(Feed(*one, 50).ok());
  ASSERT_TRUE(StoreAll(cache, layout).ok());
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    ASSERT_TRUE(Put(cache, layer, [](int64_t i) { return i % 2 == 0 ? 0 : 1; }).ok());
  }
  const std::vector<int32_t> positions = cache.Positions(1, 1);
  for (const bool keys : {true, false}) {
    const std::vector<float> whole = keys ? Keys(plain, 1, 1) : Values(plain, 1, 1);
    std::vector<float> want = Picked(whole, positions);
    for (int64_t i = 0; i < 25 * kDim; ++i) {
      const float* word = &words[static_cast<size_t>(2 * (kDim + i % kDim))];
      float& number = want[static_cast<size_t>(i)];
      number = std::abs(number - word[1]) < std::abs(number - word[0]) ? word[1] : word[0];
    }
    EXPECT_EQ(keys ? Keys(cache, 1, 1) : Values(cache, 1, 1), want);
  }
  ExpectAttendsAsRead(cache, 1);
  const KvBytes bytes = cache.Bytes();
  EXPECT_EQ(bytes.scales, kLayers * 2 * kHeads * kDim * 2 * 4);
  EXPECT_EQ(bytes.payload, kLayers * kHeads * 2 * (25 * kDim * 4 + 25 * kDim / 8));
  const Result<std::string> written = cache.Serialize();
  ASSERT_TRUE(written.ok());
  KvCache again = NewCache(pools);
  ASSERT_TRUE(again.Deserialize(*written).ok());
  EXPECT_EQ(Keys(again, 1, 0), Keys(cache, 1, 0));
  EXPECT_EQ(Values(again, 0, 1), Values(cache, 0, 1));
  EXPECT_EQ(again.Bytes(), bytes);
  ExpectAttendsAsRead(again, 0);
  // A layout whose words were never found, and one with too few.
  KvCache other = NewCache(pools);
  ASSERT_TRUE(Feed(other, 10).ok());
  EXPECT_THAT(other.Store(0, PlanOf(without)).error().message, HasSubstr("must be f32[64]"));
  layout.classes[0].value_table = View(words, {kHeads, 2 * kDim}).Slice(0, 1);
  layout.classes[0].value_table = layout.classes[0].value_table.Reshape({kHeads, kDim});
  EXPECT_THAT(other.Store(0, PlanOf(layout)).error().message, HasSubstr("must be f32[64]"));
}

TEST_F(ClassesTest, EntriesCanBeEvictedAndForgotten) {
  CachePools pools(*ops_);
  KvCache cache = Third(pools, Layout());
  const std::vector<int32_t> kept = {0, 5, 33, 34, 60, 67, 68, 99};
  const std::vector<float> keys = Picked(Keys(cache, 1, 0), kept);
  const std::vector<HeadPlan> heads = {Keep(kept), Keep(kept)};
  ASSERT_TRUE(cache.Reduce(1, heads).ok());
  EXPECT_TRUE(AllWithin(Keys(cache, 1, 0), keys, 0.8));
  EXPECT_THAT(cache.Positions(1, 0), ElementsAre(0, 15, 99, 1, 79, 2, 5, 98));
  ExpectAttendsAsRead(cache, 1);
  ASSERT_TRUE(cache.Truncate(50).ok());
  EXPECT_THAT(cache.Positions(1, 0), ElementsAre(0, 15, 1, 2, 5));
  EXPECT_EQ(cache.length(0, 0), 50);
  ExpectAttendsAsRead(cache, 0);
  const std::vector<int32_t> two = {0, 1}, one = {0};
  HeadPlan merging = Keep(two);
  const std::vector<int32_t> from = {2}, to = {1};
  const std::vector<float> weight = {0.5f};
  merging.values.from = View(from, {1});
  merging.values.to = View(to, {1});
  merging.values.weight = View(weight, {1});
  const std::vector<HeadPlan> merged = {merging, Keep(one)};
  const Status status = cache.Reduce(1, merged);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("different classes cannot be merged"));
}

TEST_F(ClassesTest, BytesAreWhatThePoolHasGivenOut) {
  CachePools pools(*ops_);
  Classes layout = Layout(DType::kF16);
  const std::vector<float> scales(kHeads * kDim, 2.0f);
  layout.value_scales = View(scales, {kHeads, kDim});
  KvCache cache = Third(pools, layout, DType::kF16);
  const KvBytes bytes = cache.Bytes();
  // Keys: 34 uncoded, 33 in 4 bits, 32 in 2, and one that fills no group; values: 34, 33, 33.
  const int64_t keys = 35 * 64 + 33 * 16 + 32 * 8, values = 34 * 64 + 33 * 16 + 33 * 8;
  EXPECT_EQ(bytes.payload, kLayers * kHeads * (keys + values));
  EXPECT_EQ(bytes.scales, kLayers * kHeads * (33 * 4 + 2 * kDim * 4 + 66 * 4 + kDim * 4));
  EXPECT_EQ(bytes.indices, kLayers * kHeads * 100 * 4);
  EXPECT_EQ(bytes.resident(), pools.of(Tier::kDevice).used_bytes());
  KvCache fork = cache.Fork();
  ASSERT_TRUE(Put(fork, 0, [](int64_t) { return 2; }).ok());
  EXPECT_EQ(cache.Bytes(), bytes);
}

TEST_F(ClassesTest, BytesBringItBackAndOthersAreRefused) {
  CachePools pools(*ops_);
  KvCache cache = Third(pools, Layout());
  ASSERT_TRUE(Feed(cache, 7, 9).ok());
  const Result<std::string> bytes = cache.Serialize();
  ASSERT_TRUE(bytes.ok());
  KvCache again = NewCache(pools);
  ASSERT_TRUE(again.Deserialize(*bytes).ok());
  EXPECT_EQ(Keys(again, 1, 1), Keys(cache, 1, 1));
  EXPECT_EQ(again.Positions(0, 0), cache.Positions(0, 0));
  for (KvCache* one : {&cache, &again}) {
    ASSERT_TRUE(Feed(*one, 3, 9).ok());
    EXPECT_TRUE(one->ClassesAreDue(1));
    ASSERT_TRUE(Put(*one, 1, [](int64_t i) { return i >= 100 ? 2 : -1; }).ok());
  }
  EXPECT_EQ(Keys(again, 1, 1), Keys(cache, 1, 1));
  // Two entries of a class that change their places.
  std::string swapped = *bytes;
  const std::array<int32_t, 3> ordered = {3, 6, 9}, other = {3, 9, 6};
  const std::string_view text(reinterpret_cast<const char*>(ordered.data()), sizeof(ordered));
  const size_t at = swapped.find(text);
  ASSERT_NE(at, std::string::npos);
  std::memcpy(swapped.data() + at, other.data(), sizeof(other));
  KvCache third = NewCache(pools);
  const Status status = third.Deserialize(swapped);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message,
              HasSubstr("are of one part and do not ascend; expected ascending positions"));
}

// What comes to a class that was read back is coded as in the one that was written.
TEST_F(ClassesTest, BytesSayHowCodesAreFound) {
  CachePools pools(*ops_);
  Classes layout = Layout();
  for (KvCodec* codec : {&layout.classes[1].keys, &layout.classes[1].values}) {
    codec->exact_scale = true;
  }
  KvCache cache = Third(pools, layout);
  KvCache again = NewCache(pools);
  ASSERT_TRUE(again.Deserialize(*cache.Serialize()).ok());
  std::vector<std::vector<float>> held;
  for (const bool exact : {true, false}) {
    layout.classes[1].keys.exact_scale = layout.classes[1].values.exact_scale = exact;
    KvCache other = Third(pools, layout);
    for (KvCache* one : {&cache, &again, &other}) {
      if (!exact && one != &other) continue;
      ASSERT_TRUE(Feed(*one, 400, 9).ok());
      ASSERT_TRUE(Put(*one, 1, [](int64_t i) { return i >= 100 ? 1 : -1; }).ok());
      held.push_back(Values(*one, 1, 1));
    }
  }
  EXPECT_EQ(held[1], held[0]);
  EXPECT_EQ(held[2], held[0]);
  EXPECT_NE(held[3], held[0]);  // where that matters
}

TEST_F(ClassesTest, RefusesWhatItCannotStore) {
  CachePools pools(*ops_);
  const auto refusal = [&](const Classes& layout, KeyTurn turn = {}) {
    KvCache cache = NewCache(pools);
    EXPECT_TRUE(Feed(cache, 10).ok());
    const Status status = cache.Store(0, PlanOf(layout, turn));
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(refusal(Layout()), "");
  EXPECT_THAT(refusal(Layout(), {.raw = true, .position = PositionPolicy::kSlot}),
              HasSubstr("entries change their places"));
  Classes layout = Layout();
  layout.classes[1].values.outlier_share = 0.1;
  EXPECT_THAT(refusal(layout), HasSubstr("no codebooks, fixed scales, outliers or corrections"));
  layout = Layout();
  std::vector<float> scales(kHeads * kDim, 1.0f);
  layout.key_scales = View(scales, {1, kHeads * kDim});
  EXPECT_THAT(refusal(layout), HasSubstr("scales [1, 64] of channels; right is [2, 32]"));
  scales[40] = 0;
  layout.key_scales = View(scales, {kHeads, kDim});
  EXPECT_THAT(refusal(layout), HasSubstr("0 is the scale of a channel"));
  KvCache cache = Third(pools, Layout());
  const Status status = Put(cache, 0, [](int64_t i) { return i == 7 ? 3 : -1; });
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("KV head 0: entry 7 in class 3 of 3"));
  KvCache plain = NewCache(pools);
  ASSERT_TRUE(Feed(plain, 10).ok());
  EXPECT_THAT(Put(plain, 0, [](int64_t) { return 0; }).error().message,
              HasSubstr("plain: entries have no classes"));
}

}  // namespace
}  // namespace kvgauge
