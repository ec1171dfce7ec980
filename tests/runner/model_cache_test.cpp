// SPDX-License-Identifier: Apache-2.0
// The forward pass over caches of every kind: hooks, raw keys, slots, forks in company, prepared
// weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "methods/layouts/coded.h"
#include "methods/layouts/latent.h"
#include "methods/layouts/plain.h"
#include "runner/generate.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

constexpr const char* kStoredConfig = R"({
  "model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 64, "intermediate_size": 80, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
  "vocab_size": 101, "max_position_embeddings": 512, "rms_norm_eps": 1e-05,
  "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "float32",
  "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2
})";

std::vector<float> Floats(const Tensor& t) { return {t.f32(), t.f32() + t.Numel()}; }

class ModelCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "kvg_model_cache_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    std::ofstream(directory_ + "/config.json") << kStoredConfig;
    ops_ = std::move(*MakeOps("cpu", MakeThreadSettings(2)));
    model_ = LoadModel(nullptr);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 150; ++i) ids.push_back((i * 7 + 3) % 101);
    prompt_ = Prompt::FromTokens(ids);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Model> LoadModel(const Prepare* prepare) {
    ModelOptions options;
    options.random_seed = 5;
    options.prepare = prepare;
    Result<std::unique_ptr<Model>> model = Model::Load(directory_, options, *ops_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return std::move(model).value();
  }

  // Rows [tokens(), end) of the prompt; the logits of the last.
  std::vector<float> Run(Model& model, KvCache& cache, int64_t end, LayerHook* hook = nullptr) {
    const int64_t begin = cache.tokens();
    EXPECT_TRUE(cache.Append(end - begin).ok());
    const SequenceStep step{&cache, &prompt_, begin, end, LogitRows::kLast, hook};
    const std::vector<float> logits = Floats(model.Forward({&step, 1}));
    EXPECT_TRUE(cache.Seal().ok());
    return logits;
  }

  static StorePlan RawPlan(PositionPolicy position) {
    return PlanOf(Plain(), {.raw = true, .position = position});
  }
  static void StoreAll(KvCache& cache, const StorePlan& plan) {
    for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
      const Status status = cache.Store(layer, plan);
      ASSERT_TRUE(status.ok()) << status.error().message;
    }
  }

  std::string directory_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  Prompt prompt_;
};

class Watcher final : public LayerHook {
 public:
  explicit Watcher(KvCache& cache) : cache_(cache) {}
  bool wants_log_sum_exp() const override { return true; }
  void BeforeAttend(int64_t layer, const Tensor& q) override {
    before.push_back(layer);
    rows = q.shape[0];
    if (!words.empty()) {
      cache_.SetRead(layer, Tensor(words.data(), DType::kI64, {4, std::ssize(words) / 4}));
    }
  }
  void AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                   const Tensor& out) override {
    after.push_back(layer);
    EXPECT_EQ(q.shape[1], 4);
    EXPECT_EQ(log_sum_exp.shape[0], 4);
    EXPECT_EQ(log_sum_exp.shape[1], rows);
    EXPECT_EQ(out.shape[0], rows);
    last_sum = log_sum_exp[3].f32()[rows - 1];
    if (layer == 0) first_query.assign(q[0].f32(), q[0].f32() + 4 * 32);
  }

  std::vector<int64_t> before, after, words;
  std::vector<float> first_query;
  int64_t rows = 0;
  float last_sum = 0;

 private:
  KvCache& cache_;
};

// Reads some entries of a cache as if there were no others.
class SideBySideReads final : public LayerHook {
 public:
  SideBySideReads(KvCache& cache, std::vector<int32_t> entries)
      : cache_(cache), entries_(std::move(entries)) {}
  void BeforeAttend(int64_t layer, const Tensor&) override {
    const int64_t tokens = cache_.tokens(), words = (tokens + 63) / 64;
    std::vector<int64_t> bits(static_cast<size_t>(4 * words));
    std::vector<int32_t> places(static_cast<size_t>(tokens));
    for (int32_t i = 0; i < tokens; ++i) places[static_cast<size_t>(i)] = i;
    std::vector<int32_t> read = entries_;
    for (auto i = static_cast<int32_t>(held_); i < tokens; ++i) read.push_back(i);
    for (size_t i = 0; i < read.size(); ++i) {
      places[static_cast<size_t>(read[i])] = static_cast<int32_t>(tokens - std::ssize(read) + i);
      for (int64_t h = 0; h < 4; ++h) {
        bits[static_cast<size_t>(h * words + read[i] / 64)] |=
            static_cast<int64_t>(uint64_t{1} << (read[i] % 64));
      }
    }
    cache_.SetRead(layer, Tensor(bits.data(), DType::kI64, {4, words}), {}, View(places, {tokens}));
  }
  void AfterAttend(int64_t, const Tensor&, const Tensor&, const Tensor&) override {}

 private:
  KvCache& cache_;
  const std::vector<int32_t> entries_;
  const int64_t held_ = cache_.tokens();
};

// Keys that turn by other places than their own: the same as a cache that holds nothing else, where
// queries and keys turn by slots. For one row, and for many.
TEST_F(ModelCacheTest, WhatIsReadMayStandSideBySide) {
  std::vector<int32_t> some = {0, 1, 2};
  for (int32_t i = 40; i < 75; ++i) some.push_back(i);
  for (const int64_t end : {101, 140}) {
    KvCache read = model_->NewCache(160), slots = model_->NewCache(160);
    Run(*model_, read, 100);
    Run(*model_, slots, 100);
    StoreAll(read, RawPlan(PositionPolicy::kOriginal));
    for (int64_t layer = 0; layer < 2; ++layer) {
      std::vector<HeadPlan> plan(2);
      plan[0].keep = plan[1].keep = View(some, {std::ssize(some)});
      ASSERT_TRUE(slots.Reduce(layer, plan).ok());
    }
    StoreAll(slots, RawPlan(PositionPolicy::kSlot));
    KvCache plain = read.Fork();
    SideBySideReads hook(read, some);
    const std::vector<float> got = Run(*model_, read, end, &hook);
    EXPECT_TRUE(AllWithin(got, Run(*model_, slots, end), 2e-5)) << end;
    EXPECT_FALSE(AllWithin(got, Run(*model_, plain, end), 1e-3)) << end;
    // What was said of one pass does not hold for the next.
    EXPECT_EQ(Run(*model_, read, end + 1).size(), got.size());
    const KvSegment& segment = read.Layer(0)[0].segments[0];
    EXPECT_EQ(segment.rotation[50], 50);
    EXPECT_EQ(segment.read, nullptr);
  }
}

TEST_F(ModelCacheTest, HooksSeeEveryLayerAndChangeNothing) {
  KvCache plain = model_->NewCache(160), watched = model_->NewCache(160);
  Watcher watcher(watched);
  const std::vector<float> want = Run(*model_, plain, 100);
  EXPECT_TRUE(SameBits(Run(*model_, watched, 100, &watcher), want));
  EXPECT_EQ(watcher.before, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(watcher.after, watcher.before);
  EXPECT_EQ(watcher.rows, 100);
  EXPECT_TRUE(std::isfinite(watcher.last_sum));
  // What a hook lets heads read counts, until the next rows.
  KvCache limited = watched.Fork();
  Watcher narrow(limited);
  narrow.words = {0, int64_t{1} << 36, 0, int64_t{1} << 36,
                  0, int64_t{1} << 36, 0, int64_t{1} << 36};
  const std::vector<float> full = Run(*model_, watched, 101);
  EXPECT_FALSE(AllWithin(Run(*model_, limited, 101, &narrow), full, 1e-3));
  EXPECT_EQ(narrow.rows, 1);
}

TEST_F(ModelCacheTest, RawKeysGiveTheLogitsOfRotatedOnes) {
  KvCache plain = model_->NewCache(160), raw = model_->NewCache(160);
  StoreAll(raw, RawPlan(PositionPolicy::kOriginal));
  const std::vector<float> want = Run(*model_, plain, 100);
  EXPECT_TRUE(AllWithin(Run(*model_, raw, 100), want, 1e-4));
  KvCache later = plain.Fork();
  StoreAll(later, RawPlan(PositionPolicy::kOriginal));
  const std::vector<float> next = Run(*model_, plain, 105);
  EXPECT_TRUE(AllWithin(Run(*model_, raw, 105), next, 1e-4));
  EXPECT_TRUE(AllWithin(Run(*model_, later, 105), next, 1e-4));
  // Slots are positions as long as nothing is evicted.
  KvCache slots = model_->NewCache(160);
  StoreAll(slots, RawPlan(PositionPolicy::kSlot));
  Run(*model_, slots, 100);
  EXPECT_TRUE(AllWithin(Run(*model_, slots, 105), next, 1e-4));
}

// A query of the first layer is that of the same token at the place its head's entry has.
TEST_F(ModelCacheTest, QueriesTurnBySlots) {
  KvCache evicted = model_->NewCache(160), fresh = model_->NewCache(160);
  StoreAll(evicted, RawPlan(PositionPolicy::kSlot));
  Run(*model_, evicted, 60);
  std::vector<int32_t> late(20), early(10);
  std::iota(late.begin(), late.end(), 40);
  std::iota(early.begin(), early.end(), 50);
  std::vector<HeadPlan> plan(2);
  plan[0].keep = View(late, {20});
  plan[1].keep = View(early, {10});
  ASSERT_TRUE(evicted.Reduce(0, plan).ok());
  Watcher slot_queries(evicted), own_queries(fresh);
  Run(*model_, evicted, 61, &slot_queries);
  // The same token as row 60, at position 20 of a prompt of its own.
  prompt_.positions[20].token_id = prompt_.positions[60].token_id;
  Run(*model_, fresh, 20);
  Run(*model_, fresh, 21, &own_queries);
  const auto head = [](const std::vector<float>& q, int64_t h) {
    return std::vector<float>(q.begin() + h * 32, q.begin() + (h + 1) * 32);
  };
  EXPECT_TRUE(SameBits(head(slot_queries.first_query, 0), head(own_queries.first_query, 0)));
  EXPECT_TRUE(SameBits(head(slot_queries.first_query, 1), head(own_queries.first_query, 1)));
  // The second KV head holds fewer entries, so its queries turn less.
  EXPECT_FALSE(
      AllWithin(head(slot_queries.first_query, 2), head(own_queries.first_query, 2), 1e-3));
}

KvCodec Codes(int bits, CodeAxis axis) {
  KvCodec codec;
  codec.kind = KvCodecKind::kAffine;
  codec.bits = bits;
  codec.axis = axis;
  codec.group = 32;
  return codec;
}

TEST_F(ModelCacheTest, ForksOfEveryKindGetTheBitsTheyGetAlone) {
  KvCache root = model_->NewCache(160);
  Run(*model_, root, 130);
  Coded kivi;
  kivi.keys = Codes(4, CodeAxis::kChannel);
  kivi.values = Codes(4, CodeAxis::kToken);
  kivi.seal_keys = {.unit = 32, .keep_recent = 0};
  kivi.seal_values = {.unit = 1, .keep_recent = 32};
  kivi.sinks = 4;
  std::vector<KvCache> forks;
  for (int i = 0; i < 5; ++i) forks.push_back(root.Fork());
  StoreAll(forks[1], PlanOf(kivi));
  StoreAll(forks[2], RawPlan(PositionPolicy::kSlot));
  std::vector<int32_t> kept;
  for (int32_t i = 0; i < 130; i += 3) kept.push_back(i);
  std::vector<HeadPlan> plan(2);
  plan[0].keep = plan[1].keep = View(kept, {std::ssize(kept)});
  for (const size_t fork : {size_t{2}, size_t{3}}) {
    for (int64_t layer = 0; layer < 2; ++layer) {
      ASSERT_TRUE(forks[fork].Reduce(layer, plan).ok());
    }
  }
  StoreAll(forks[4], PlanOf(kivi, {.raw = true}));
  // Alone, several steps each.
  std::vector<std::vector<float>> alone;
  for (const KvCache& fork : forks) {
    KvCache own = fork.Fork();
    for (int64_t end = 131; end < 140; ++end) Run(*model_, own, end);
    alone.push_back(Run(*model_, own, 140));
  }
  std::vector<std::vector<float>> together(forks.size());
  for (int64_t end = 131; end <= 140; ++end) {
    std::vector<SequenceStep> steps;
    for (KvCache& fork : forks) {
      ASSERT_TRUE(fork.Append(1).ok());
      steps.push_back({&fork, &prompt_, end - 1, end});
    }
    const Tensor logits = model_->Forward(steps);
    for (size_t i = 0; i < forks.size(); ++i) {
      together[i] = Floats(logits[static_cast<int64_t>(i)]);
      ASSERT_TRUE(forks[i].Seal().ok());
    }
  }
  for (size_t i = 0; i < forks.size(); ++i) {
    EXPECT_TRUE(SameBits(together[i], alone[i])) << "fork " << i;
  }
  // Codes of 4 bits stay near; a third of the entries does not.
  EXPECT_TRUE(AllWithin(together[1], together[0], 1.0));
  EXPECT_FALSE(SameBits(together[1], together[0]));
}

TEST_F(ModelCacheTest, AFullPoolIsOneSequencesError) {
  CachePools::Limits limits;
  limits.device_bytes = 2 << 10;
  CachePools small(*ops_, limits);
  KvCache poor = model_->NewCache(160, small), rich = model_->NewCache(160);
  EXPECT_EQ(Prefill(*model_, prompt_, poor, 64, false, [](const Tensor&) { return Status(); })
                .error()
                .code,
            ErrorCode::kResource);
  EXPECT_EQ(poor.tokens(), 0);
  EXPECT_TRUE(
      Prefill(*model_, prompt_, rich, 64, false, [](const Tensor&) { return Status(); }).ok());
}

// Both KV heads into one that keeps the first.
class DropHead final : public Prepare {
 public:
  Status Transform(WeightView& weights) const override {
    KVG_TRY(weights.SetKvHeads(1));
    for (int64_t layer = 0; layer < weights.shape().layers; ++layer) {
      for (const auto matrix : {WeightView::Matrix::kKey, WeightView::Matrix::kValue}) {
        if (matrix == WeightView::Matrix::kValue && forgetful) continue;
        KVG_ASSIGN(const Tensor both, weights.Read(layer, matrix));
        KVG_TRY(weights.Write(layer, matrix, both.Slice(0, 32)));
      }
    }
    return {};
  }
  bool forgetful = false;
};

TEST_F(ModelCacheTest, PreparedModelsMayHaveFewerHeads) {
  DropHead drop;
  const std::unique_ptr<Model> one = LoadModel(&drop);
  EXPECT_EQ(one->config().kv_heads, 1);
  EXPECT_EQ(one->shape().kv_heads, 1);
  KvCache cache = one->NewCache(160), full = model_->NewCache(160);
  Run(*one, cache, 70);
  Run(*model_, full, 70);
  EXPECT_EQ(cache.Bytes().payload * 2, full.Bytes().payload);
  std::vector<float> a(70 * 32), b(70 * 32);
  cache.ReadKeys(0, 0, 0, View(a, {70, 32}));
  full.ReadKeys(0, 0, 0, View(b, {70, 32}));
  EXPECT_TRUE(SameBits(a, b));
  drop.forgetful = true;
  ModelOptions options;
  options.random_seed = 5;
  options.prepare = &drop;
  EXPECT_THAT(Model::Load(directory_, options, *ops_).error().message,
              ::testing::HasSubstr("'model.layers.0.self_attn.v_proj.weight' was not written for 1 "
                                   "KV heads of"));
}

// Bases of full rank for whatever the projections give: a store of latents is then exact.
class Axes final : public Prepare {
 public:
  Status Transform(WeightView& weights) const override {
    std::vector<float> identity(32 * 32);
    for (size_t i = 0; i < 32; ++i) identity[i * 33] = 1;
    for (int64_t layer = 0; layer < weights.shape().layers; ++layer) {
      for (int64_t head = 0; head < heads; ++head) {
        for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
          KVG_TRY(weights.WriteBasis(layer, side, head, 1, View(identity, {32, 32})));
        }
      }
    }
    return {};
  }
  int64_t heads = 2;
};

TEST_F(ModelCacheTest, BasesReachTheCaches) {
  Axes axes;
  const std::unique_ptr<Model> prepared = LoadModel(&axes);
  KvCache latent = prepared->NewCache(160), plain = model_->NewCache(160);
  StoreAll(latent, PlanOf(Latent()));
  const std::vector<float> want = Run(*model_, plain, 100);
  EXPECT_TRUE(AllWithin(Run(*prepared, latent, 100), want, 1e-4));
  EXPECT_TRUE(AllWithin(Run(*prepared, latent, 101), Run(*model_, plain, 101), 1e-4));
  axes.heads = 1;
  ModelOptions options;
  options.random_seed = 5;
  options.prepare = &axes;
  EXPECT_THAT(Model::Load(directory_, options, *ops_).error().message,
              ::testing::HasSubstr("must cover all KV heads once"));
}

}  // namespace
}  // namespace kvgauge
