// SPDX-License-Identifier: Apache-2.0
// Scores that count how far an entry is (ALiBi): by its position, whatever was evicted, merged or
// coded around it, and on every backend alike.
#include "src/cache/distances.h"

#include <cmath>

#include "runner/cache_fixture.h"
#include "runner/engine_fixture.h"
#include "support/fixtures.h"
#include "support/test_ops.h"

namespace kvgauge {
namespace {

class DistancesTest : public CacheTest {
 protected:
  static constexpr float kSlopes[kQueryHeads] = {0.25f, 0.0625f, 0.015625f, 0.5f};

  static KvCache NewDistanceCache(CachePools& pools, int64_t planned = 512) {
    ModelConfig config = CacheConfig(kLayers, kQueryHeads, kHeads, kDim);
    config.rope.reset();
    config.distance_slopes.assign(std::begin(kSlopes), std::end(kSlopes));
    KvCacheOptions options;
    options.planned_length = planned;
    return KvCache(config, options, pools);
  }

  // One query row over the entries as they are read back, each slope times what `place` says.
  template <class Place>
  std::vector<float> ByHand(const KvCache& cache, const std::vector<float>& q, const Place& place) {
    std::vector<float> out(static_cast<size_t>(kQueryHeads * kDim));
    for (int64_t g = 0; g < kQueryHeads; ++g) {
      const int64_t h = g / (kQueryHeads / kHeads), n = cache.length(0, h);
      const std::vector<float> keys = Keys(cache, 0, h), values = Values(cache, 0, h);
      const std::vector<int32_t> positions = cache.Positions(0, h);
      std::vector<double> score(static_cast<size_t>(n));
      double most = -1e30, total = 0;
      for (int64_t i = 0; i < n; ++i) {
        double dot = 0;
        for (int64_t d = 0; d < kDim; ++d) {
          dot += double{q[static_cast<size_t>(g * kDim + d)]} *
                 keys[static_cast<size_t>(i * kDim + d)];
        }
        const double far = place(i, positions[static_cast<size_t>(i)]);
        score[static_cast<size_t>(i)] = 0.2 * dot + double{kSlopes[g]} * far;
        most = std::max(most, score[static_cast<size_t>(i)]);
      }
      for (double& s : score) total += s = std::exp(s - most);
      for (int64_t d = 0; d < kDim; ++d) {
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) {
          sum += score[static_cast<size_t>(i)] / total * values[static_cast<size_t>(i * kDim + d)];
        }
        out[static_cast<size_t>(g * kDim + d)] = static_cast<float>(sum);
      }
    }
    return out;
  }
  std::vector<float> ByPosition(const KvCache& cache, const std::vector<float>& q) {
    return ByHand(cache, q, [](int64_t, int32_t position) { return double(position); });
  }

  const std::vector<float> q_ = RandomValues(kQueryHeads * kDim, 3, 2.0f);
};

TEST_F(DistancesTest, AreThoseOfPositions) {
  CachePools pools(*ops_);
  KvCache cache = NewDistanceCache(pools, 100);
  ASSERT_TRUE(Feed(cache, 90).ok());
  EXPECT_TRUE(AllWithin(Attend(cache, 0, q_), ByPosition(cache, q_), 1e-4));
  EXPECT_FALSE(AllWithin(Attend(cache, 0, q_), AttendDecoded(cache, 0, q_), 1e-2));
  // Heads that keep different entries, with a gap behind the first ones and holes.
  std::vector<int32_t> some = {0, 1, 2}, others;
  for (int32_t i = 60; i < 90; ++i) some.push_back(i);
  for (int32_t i = 0; i < 90; i += 3) others.push_back(i);
  const std::vector<HeadPlan> plan = {Keep(some), Keep(others)};
  ASSERT_TRUE(cache.Reduce(0, plan).ok());
  EXPECT_TRUE(AllWithin(Attend(cache, 0, q_), ByPosition(cache, q_), 1e-4));
  KvCache fork = cache.Fork();
  // What is new stands behind them, past what was planned too.
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(Feed(cache, 1).ok());
  EXPECT_TRUE(AllWithin(Attend(cache, 0, q_), ByPosition(cache, q_), 1e-4));
  EXPECT_TRUE(AllWithin(Attend(fork, 0, q_), ByPosition(fork, q_), 1e-4));
  // The same, where a reader says what is read and adds to it.
  const auto n = std::max(cache.length(0, 0), cache.length(0, 1));
  const std::vector<float> nothing(static_cast<size_t>(kQueryHeads * n));
  const std::vector<int64_t> words(static_cast<size_t>(kQueryHeads * ((n + 63) / 64)), -1);
  const Tensor every(const_cast<int64_t*>(words.data()), DType::kI64, {kQueryHeads, (n + 63) / 64});
  const std::vector<float> plain = Attend(cache, 0, q_);
  cache.SetRead(0, every, View(nothing, {kQueryHeads, n}));
  EXPECT_TRUE(AllWithin(Attend(cache, 0, q_), plain, 1e-6));
  cache.SetRead(0, every);
  EXPECT_TRUE(AllWithin(Attend(cache, 0, q_), plain, 1e-6));
  cache.SetRead(0, {});
  ASSERT_TRUE(cache.Truncate(100).ok());
  EXPECT_TRUE(AllWithin(Attend(cache, 0, q_), ByPosition(cache, q_), 1e-4));
  const Result<std::string> bytes = cache.Serialize();
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  KvCache back = NewDistanceCache(pools);
  ASSERT_TRUE(back.Deserialize(*bytes).ok());
  EXPECT_EQ(Attend(back, 0, q_), Attend(cache, 0, q_));
}

// Selection, merging and codes on the golden checkpoints: the reference twin computes in double.
TEST(Distances, BackendsAgree) {
  for (const char* golden : {"bloom", "mpt_clip"}) {
    const std::string checkpoint = StrCat(KVG_TEST_DATA, "/golden/models/", golden);
    for (const char* id : {"full", "snapkv", "d2o", "kivi_2bit"}) {
      SCOPED_TRACE(StrCat(golden, " ", id));
      const Method method = Shipped(id);
      const Budget budget = method.takes_budget ? Fraction(0.5) : Budget{};
      std::vector<std::vector<int32_t>> tokens;
      for (const char* backend : {"cpu", "reference"}) {
        const std::unique_ptr<Ops> ops = MakeHostOps(backend, 1);
        ModelOptions options;
        options.dtype = DType::kF32;
        const Result<std::unique_ptr<Model>> model = Model::Load(checkpoint, options, *ops);
        ASSERT_TRUE(model.ok()) << model.error().message;
        EngineSample sample = {.id = id, .turns = {{.max_new_tokens = 6}}};
        sample.turns[0].ids = RandomIds(200, 7, (*model)->config().vocab_size);
        const Contender contender = {.method = &method, .budget = budget, .model = model->get()};
        const CellResult cell = RunEngine({contender}, {}, {sample}).at({0, 0});
        ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
        tokens.push_back(cell.turns[0].ids);
      }
      EXPECT_EQ(tokens[0], tokens[1]);
    }
  }
}

TEST(Distances, StagesThatWeighProductsAreRefused) {
  ModelShape shape = TinyShape("mha");
  shape.rotary_dim = 0;
  shape.distances = true;
  const auto fault = [&](const std::string& id, const std::vector<std::string>& overrides = {}) {
    const Method method = Shipped(id, overrides);
    const Budget budget = method.takes_budget ? Fraction(0.5) : Budget{};
    const Status status = CheckMethod(method, shape, budget, 1000);
    return status.ok() ? std::string() : status.error().message;
  };
  for (const char* id : {"full", "snapkv", "h2o", "tova", "kivi_2bit", "d2o"}) {
    EXPECT_EQ(fault(id), "") << id;
  }
  const std::pair<const char*, const char*> refused[] = {
      {"quest", "read.quest"},
      {"minference", "attend.minference"},
      {"rkv", "score.rkv"},
      {"morphkv", "score.morphkv"},
      {"laq", "score.laq"},
      {"gemfilter", "thin.gemfilter"},
      {"kvzip", "score.kvzip"},
      {"expected_attention", "score.expected_attention"},
      {"compactor", "score.compactor"}};
  for (const auto& [id, stage] : refused) {
    // Some need more of a model than this one has, and then that is what they say.
    EXPECT_NE(fault(id).find(stage), std::string::npos) << id << ": " << fault(id);
  }
  EXPECT_NE(fault("full", {"store.position=clipped", "store.position_limit=64"}).find("clipped"),
            std::string::npos);
}

// As Falcon has them: slope, position and product have the eight bits of bf16.
TEST(DistanceTable, RoundsWhereAskedTo) {
  const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 1);
  const float slopes[] = {0.70710678f, 0.5f};
  const DistanceTable exact(*ops, slopes, 0.0f, 400), rounded(*ops, slopes, 0.25f, 400);
  const std::vector<float> plain = HostFloats(*ops, exact.Of(0));
  const std::vector<float> first = HostFloats(*ops, rounded.Of(0));
  const std::vector<float> second = HostFloats(*ops, rounded.Of(1));
  EXPECT_EQ(plain[257], 0.70710678f * 257);
  EXPECT_EQ(first[1], 0.25f * 0.70703125f);
  EXPECT_EQ(first[256], 0.25f * 181);
  EXPECT_EQ(first[257], first[256]);  // 257 is 256
  EXPECT_EQ(second[255], 0.25f * 127.5f);
  EXPECT_EQ(second[259], 0.25f * 130);  // 259 is 260
}

}  // namespace
}  // namespace kvgauge
