// SPDX-License-Identifier: Apache-2.0
// The example of docs/add-a-store.md: what the page shows is what stands here, and it works.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include "core/files.h"
#include "methods/tensors.h"
#include "runner/cache_fixture.h"
#include "src/cache/bytes.h"
#include "src/cache/layer_layout.h"

// What the page calls methods/include/methods/layouts/short_values.h.
#include "methods/store_plan.h"

namespace kvgauge {

// Values of `dim` numbers, the first ones; the others count as 0.
struct ShortValues final : StoreLayout {
  int64_t dim = 0;

  static constexpr std::string_view kId = "short_values";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override { return {.exact = false}; }
  double HeadBytes(const ModelShape& shape, int64_t entries) const override {
    return static_cast<double>(entries * (shape.key_dim + dim) * SizeOf(shape.cache_dtype));
  }
  int64_t EntryBits(const ModelShape& shape) const override {
    return 8 * (shape.key_dim + dim) * SizeOf(shape.cache_dtype);
  }
};

namespace {

class ShortValuesLayer final : public LayerLayout {
 public:
  std::string_view id() const override { return ShortValues::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    return std::make_unique<ShortValuesLayer>(*this);
  }

  // The plan, from a stage or from bytes.
  Status Use(const StoreLayout& plan, const LayerEntries& entries) override {
    plan_ = static_cast<const ShortValues&>(plan);
    return MakeBasis(entries);
  }
  Status Put(std::string& out) const override {
    PutNumber(out, plan_.dim);
    return {};
  }
  Status Take(std::string_view& in, const LayerEntries& entries) override {
    const int64_t most = entries.HeadDim(KvSide::kValues);
    KVG_TRY(TakeNumber(in, "numbers of a short value", 1, most, &plan_.dim));
    return MakeBasis(entries);
  }

  // What streams hold: the first numbers of each value.
  int64_t dim(const LayerEntries& entries, KvSide side, int64_t owner) const override {
    return transforms(side) ? plan_.dim : LayerLayout::dim(entries, side, owner);
  }
  bool transforms(KvSide side) const override { return side == KvSide::kValues; }
  Tensor Transformed(const LayerEntries&, KvSide side, int64_t, const Tensor& rows,
                     Buffer*) const override {
    const Tensor whole = HeadRows(rows, 0);
    return transforms(side) ? Columns(whole, 0, plan_.dim) : whole;
  }

  // How they are read back, and what attention is told: latents in a basis of unit vectors.
  void Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
            Tensor rows) const override {
    if (!transforms(side)) return LayerLayout::Read(entries, side, head, first, rows);
    Ops& ops = entries.ops();
    const int64_t n = rows.shape[0], width = rows.shape[1], held = plan_.dim;
    const Buffer memory = ops.memory->Allocate(n * held * 4);
    const Tensor some = memory.As(DType::kF32, {n, held});
    LayerLayout::Read(entries, side, head, first, some);
    ops.linear->MatMulNT(some.Reshape({1, n, held}), basis_.Reshape({1, width, held}), 1.0f,
                         rows.Reshape({1, n, width}));
  }
  void Describe(const LayerEntries&, std::span<KvSegment> segments) const override {
    for (KvSegment& segment : segments) segment.value_basis = basis_;
  }
  void AddBytes(const LayerEntries& entries, KvBytes& bytes) const override {
    LayerLayout::AddBytes(entries, bytes);
    bytes.slack += memory_->allocated_bytes();
  }

 private:
  Status MakeBasis(const LayerEntries& entries) {
    const int64_t width = entries.HeadDim(KvSide::kValues), held = plan_.dim;
    if (held < 1 || held > width) {
      return BadInput(StrCat("short_values: dim ", held, "; right is 1 .. ", width));
    }
    std::vector<float> units(static_cast<size_t>(width * held));
    for (int64_t i = 0; i < held; ++i) units[static_cast<size_t>(i * held + i)] = 1.0f;
    memory_ = std::make_shared<BlockList>(*entries.pool);
    KVG_TRY(memory_->Push(width * held * SizeOf(DType::kF32)));
    basis_ = Tensor((*memory_)[0], DType::kF32, {width, held}, entries.ops().device);
    entries.ops().memory->Copy(View(units, {width, held}), basis_);
    return {};
  }

  ShortValues plan_;
  std::shared_ptr<BlockList> memory_;  // shared by forks: never written again
  Tensor basis_;                       // [value_dim, dim]
};

}  // namespace
KVG_REGISTER_LAYOUT(short_values, ShortValues, ShortValuesLayer)

namespace {

using ::testing::HasSubstr;

class AddAStoreTest : public CacheTest {
 protected:
  static constexpr int64_t kHeld = 20;

  static StorePlan Plan(int64_t dim = kHeld) {
    ShortValues layout;
    layout.dim = dim;
    return PlanOf(layout);
  }
  static Status StoreAll(KvCache& cache) {
    for (int64_t layer = 0; layer < kLayers; ++layer) KVG_TRY(cache.Store(layer, Plan()));
    return {};
  }
  static void Shorten(std::vector<float>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (static_cast<int64_t>(i) % kDim >= kHeld) values[i] = 0;
    }
  }
};

TEST_F(AddAStoreTest, KeepsWhatItSays) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools), zeroed = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 100).ok());
  ASSERT_TRUE(StoreAll(cache).ok());
  ASSERT_TRUE(Feed(cache, 30).ok());
  ASSERT_TRUE(zeroed.Append(130).ok());
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::vector<float> keys = Rows(layer, 0, 130, 1);
    std::vector<float> values = Rows(layer, 0, 130, 501);
    Shorten(values);
    zeroed.Write(layer, View(keys, {130, kHeads, kDim}), View(values, {130, kHeads, kDim}));
  }
  const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3, 0.3f);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_TRUE(SameBits(Keys(cache, layer, 1), Keys(zeroed, layer, 1)));
    EXPECT_TRUE(SameBits(Values(cache, layer, 1), Values(zeroed, layer, 1)));
    EXPECT_TRUE(AllWithin(Attend(cache, layer, q), Attend(zeroed, layer, q), 1e-5));
  }
  // Bytes: what the layout says, and what the pool has given out.
  ModelShape shape;
  shape.key_dim = shape.value_dim = kDim;
  EXPECT_EQ(static_cast<double>(cache.Bytes().payload),
            kLayers * kHeads * Plan().layout->HeadBytes(shape, 130));
  CachePools alone(*ops_);
  KvCache one = NewCache(alone);
  ASSERT_TRUE(Feed(one, 100).ok());
  ASSERT_TRUE(StoreAll(one).ok());
  EXPECT_EQ(one.Bytes().resident(), alone.of(Tier::kDevice).used_bytes());
}

TEST_F(AddAStoreTest, ForksAndBytesBringItBack) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  ASSERT_TRUE(Feed(cache, 100).ok());
  ASSERT_TRUE(StoreAll(cache).ok());
  const Result<std::string> bytes = cache.Serialize();
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  KvCache again = NewCache(pools), fork = cache.Fork();
  ASSERT_TRUE(again.Deserialize(*bytes).ok());
  for (KvCache* one : {&again, &fork}) {
    ASSERT_TRUE(Feed(*one, 5, 7).ok());
    EXPECT_EQ(cache.length(1, 0), 100);
  }
  EXPECT_TRUE(SameBits(Values(again, 1, 0), Values(fork, 1, 0)));
  EXPECT_EQ(again.Bytes().payload, fork.Bytes().payload);
  KvCache cut = NewCache(pools);
  EXPECT_FALSE(cut.Deserialize(std::string_view(*bytes).substr(0, bytes->size() / 2)).ok());
}

TEST_F(AddAStoreTest, RefusesADimThatDoesNotFit) {
  CachePools pools(*ops_);
  KvCache cache = NewCache(pools);
  const Status refused = cache.Store(1, Plan(kDim + 1));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              HasSubstr("layer 1: short_values: dim 33; right is 1 .. 32"));
}

// Every block of C++ on the page stands in this file, word for word.
TEST(AddAStorePage, ShowsWhatIsTested) {
  const auto words = [](const std::string& text) {
    std::string one;
    for (const char c : text) {
      if (std::isspace(static_cast<unsigned char>(c)) == 0) one += c;
    }
    return one;
  };
  const Result<std::string> page = ReadFile(StrCat(KVG_SOURCE_DIR, "/docs/add-a-store.md"));
  const Result<std::string> source =
      ReadFile(StrCat(KVG_SOURCE_DIR, "/tests/runner/add_a_store_test.cpp"));
  ASSERT_TRUE(page.ok() && source.ok());
  const std::string tested = words(*source);
  int blocks = 0;
  for (size_t at = page->find("```cpp"); at != std::string::npos; at = page->find("```cpp", at)) {
    const size_t begin = at + 6, end = page->find("```", begin);
    ASSERT_NE(end, std::string::npos);
    const std::string block = page->substr(begin, end - begin);
    EXPECT_NE(tested.find(words(block)), std::string::npos) << block;
    at = end + 3;
    ++blocks;
  }
  EXPECT_GE(blocks, 4);
}

}  // namespace
}  // namespace kvgauge
