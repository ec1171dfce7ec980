// SPDX-License-Identifier: Apache-2.0
// Layers that attend to the cache of an earlier layer: what they cost, what they see, and what goes
// together with them.
#include <gmock/gmock.h>

#include "core/json.h"
#include "methods/calibration.h"
#include "runner/calibrate.h"
#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "support/compare.h"
#include "support/fixtures.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMapLayers = 4, kMapTokens = 90;

class LayerMapTest : public ::testing::Test {
 protected:
  static TinyModel Load(const Method& method) {
    const Pipeline pipeline = MakePipeline(method);
    ModelOptions options;
    options.prepare = pipeline.prepare.get();
    return MakeTinyModel("gqa", 1, options, kMapLayers);
  }
  // The logits of all rows.
  std::vector<float> Logits(Model& model, int64_t chunk) {
    KvCache cache = model.NewCache(kMapTokens);
    std::vector<float> all;
    const auto keep = [&](const Tensor& rows) -> Status {
      const std::vector<float> values = HostFloats(model.ops(), rows);
      all.insert(all.end(), values.begin(), values.end());
      return {};
    };
    EXPECT_TRUE(Prefill(model, prompt_, cache, chunk, true, keep).ok());
    return all;
  }

  const std::vector<int32_t> ids_ = RandomIds(kMapTokens, 5);
  const Prompt prompt_ = Prompt::FromTokens(ids_);
};

TEST_F(LayerMapTest, EachItsOwnIsTheSameModel) {
  const TinyModel plain = Load(Shipped("full"));
  const TinyModel own = Load(Shipped("cla", {"prepare.map=0_1_2_3"}));
  EXPECT_FALSE(own.model->shape().shared_caches);
  EXPECT_TRUE(SameBits(Logits(*own.model, 512), Logits(*plain.model, 512)));
  EXPECT_EQ(own.model->weight_bytes(), plain.model->weight_bytes());
}

TEST_F(LayerMapTest, ALayerWithoutACacheCostsNothing) {
  const TinyModel plain = Load(Shipped("full")), half = Load(Shipped("cla"));
  KvCache all = plain.model->NewCache(kMapTokens), some = half.model->NewCache(kMapTokens);
  ASSERT_TRUE(all.Append(kMapTokens).ok() && some.Append(kMapTokens).ok());
  EXPECT_EQ(some.layer_count(), 2);
  EXPECT_EQ(2 * some.Bytes().resident(), all.Bytes().resident());
  const ModelShape shape = half.model->shape();
  EXPECT_TRUE(shape.shared_caches);
  EXPECT_EQ(shape.layers, 2);
  EXPECT_EQ(half.model->checkpoint_shape().layers, kMapLayers);
  const ModelConfig& config = half.model->config();
  EXPECT_EQ(config.layer_count(), kMapLayers);
  EXPECT_THAT((std::vector<int64_t>{config.CacheOf(0), config.CacheOf(1), config.CacheOf(2),
                                    config.CacheOf(3)}),
              ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(config.LayerOf(1), 2);
  EXPECT_EQ(2 * config.KvBytesPerToken(DType::kF32),
            plain.model->config().KvBytesPerToken(DType::kF32));
  // Their keys and values are not projected either.
  EXPECT_LT(half.model->weight_bytes(), plain.model->weight_bytes());
}

TEST_F(LayerMapTest, ChunksGiveTheSameBits) {
  const TinyModel half = Load(Shipped("cla", {"prepare.map=0_1_1_0"}));
  const std::vector<float> whole = Logits(*half.model, 512);
  EXPECT_FALSE(SameBits(whole, Logits(*Load(Shipped("full")).model, 512)));
  for (const int64_t chunk : {1, 7, 64}) {
    EXPECT_TRUE(SameBits(Logits(*half.model, chunk), whole)) << "chunks of " << chunk;
  }
}

// Rows of all layers see what is left of the cache they read: as if the rest were hidden.
class HideFirst final : public LayerHook {
 public:
  HideFirst(KvCache& cache, int64_t hidden) : cache_(cache), hidden_(hidden) {}
  void BeforeAttend(int64_t layer, const Tensor& q) override {
    seen.push_back(layer);
    const int64_t heads = q.shape[1], words = (cache_.tokens() + 63) / 64;
    std::vector<int64_t> bits(static_cast<size_t>(heads * words));
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t entry = hidden_; entry < cache_.tokens(); ++entry) {
        bits[static_cast<size_t>(h * words + entry / 64)] |=
            static_cast<int64_t>(uint64_t{1} << (entry % 64));
      }
    }
    memory_ = cache_.ops().memory->Allocate(heads * words * 8);
    const Tensor read = memory_.As(DType::kI64, {heads, words});
    cache_.ops().memory->Copy(Tensor(bits.data(), DType::kI64, {heads, words}), read);
    cache_.SetRead(layer, read);
  }
  void AfterAttend(int64_t, const Tensor&, const Tensor&, const Tensor&) override {}

  std::vector<int64_t> seen;

 private:
  KvCache& cache_;
  int64_t hidden_;
  Buffer memory_;
};

TEST_F(LayerMapTest, ReadersSeeWhatIsLeft) {
  constexpr int64_t kGone = 20;
  const TinyModel half = Load(Shipped("cla"));
  Model& model = *half.model;
  KvCache whole = model.NewCache(kMapTokens);
  const auto none = [](const Tensor&) { return Status(); };
  const Prompt but_one = Prompt::FromTokens(std::span(ids_).first(kMapTokens - 1));
  ASSERT_TRUE(Prefill(model, but_one, whole, 512, false, none).ok());
  KvCache evicted = whole.Fork();
  std::vector<int32_t> kept;
  for (int32_t i = kGone; i < kMapTokens - 1; ++i) kept.push_back(i);
  const Buffer memory = model.ops().memory->Allocate(std::ssize(kept) * 4);
  const Tensor keep = memory.As(DType::kI32, {std::ssize(kept)});
  model.ops().memory->Copy(View(kept, {std::ssize(kept)}), keep);
  for (int64_t layer = 0; layer < evicted.layer_count(); ++layer) {
    std::vector<HeadPlan> plan(static_cast<size_t>(evicted.kv_heads()));
    for (HeadPlan& head : plan) head.keep = keep;
    ASSERT_TRUE(evicted.Reduce(layer, plan).ok());
  }
  const auto step = [&](KvCache& cache, LayerHook* hook) {
    EXPECT_TRUE(cache.Append(1).ok());
    const SequenceStep one = {.cache = &cache,
                              .prompt = &prompt_,
                              .begin = kMapTokens - 1,
                              .end = kMapTokens,
                              .hook = hook};
    return HostFloats(model.ops(), model.Forward({&one, 1}));
  };
  HideFirst hide(whole, kGone);
  const std::vector<float> want = step(whole, &hide), got = step(evicted, nullptr);
  EXPECT_TRUE(AllWithin(got, want, 1e-4));
  // Only layers that have a cache are shown, counted among themselves.
  EXPECT_THAT(hide.seen, ElementsAre(0, 1));
}

TEST_F(LayerMapTest, MethodsWorkOnTheCachesThatThereAre) {
  const std::vector<std::string> pairs = {"prepare.id=share_layers"};
  const Method full = Shipped("full", pairs);
  const TinyModel half = Load(full);
  const auto with = [&](const std::string& id, std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), pairs[0]);
    return Shipped(id, overrides);
  };
  const Method snapkv = with("snapkv", {"score.window=8", "protect.recent=8"});
  const Method slots = with("streaming_llm", {}), codes = with("int8", {}), h2o = with("h2o", {});
  const Method reader = with("quest", {"read.dense_layers=0", "read.tokens=32"});
  const Method both = with("snapkv", {"score.window=8", "protect.recent=8", "store.id=affine",
                                      "store.key_bits=8", "store.value_bits=8"});
  std::vector<Contender> contenders;
  for (const Method* method : {&full, &snapkv, &slots, &codes, &h2o, &reader, &both}) {
    contenders.push_back({.method = method,
                          .budget = method->takes_budget ? Fraction(0.5) : Budget{},
                          .model = half.model.get()});
  }
  const EngineSample sample = {.id = "one",
                               .turns = {{.ids = RandomIds(160, 9), .max_new_tokens = 6}}};
  const EngineOptions options = {.fidelity_steps = 4};
  const Cells all = RunEngine(contenders, options, {sample});
  const CellResult& whole = all.at({0, 0});
  for (int64_t i = 0; i < std::ssize(contenders); ++i) {
    const CellResult& cell = all.at({0, i});
    ASSERT_TRUE(cell.status.ok()) << i << ": " << cell.status.error().message;
    EXPECT_EQ(cell.record.entries_after.size(), 2u);
    if (i > 0) {
      EXPECT_EQ(cell.record.engagement, Engagement::kEngaged) << i;
    }
    // Alone it is the same.
    const CellResult alone =
        RunEngine({contenders[static_cast<size_t>(i)]}, options, {sample}).at({0, 0});
    EXPECT_EQ(alone.turns[0].ids, cell.turns[0].ids) << i;
    EXPECT_EQ(alone.fidelity->kl_divergence, cell.fidelity->kl_divergence) << i;
    EXPECT_EQ(alone.fidelity->attention_error.size(), 2u);
  }
  EXPECT_EQ(whole.fidelity->kl_divergence, 0);
  EXPECT_LT(all.at({0, 1}).record.bytes.payload, 0.6 * whole.record.bytes.payload);
  EXPECT_LT(all.at({0, 6}).record.bytes.logical(), all.at({0, 1}).record.bytes.logical());
}

// Against the checkpoint itself, whose layers all have a cache.
TEST_F(LayerMapTest, FidelityIsThatOfTheSameLayers) {
  const Method cla = Shipped("cla");
  const TinyModel plain = Load(Shipped("full")), half = Load(cla);
  const Contender contender = {
      .method = &cla, .model = half.model.get(), .original = plain.model.get()};
  const EngineSample sample = {.id = "one",
                               .turns = {{.ids = RandomIds(64, 9), .max_new_tokens = 4}}};
  const CellResult cell = RunEngine({contender}, {.fidelity_steps = 4}, {sample}).at({0, 0});
  ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
  ASSERT_EQ(cell.fidelity->attention_error.size(), 2u);
  // Layer 0 reads its own keys of the same rows: on the same tokens nothing is otherwise.
  EXPECT_EQ(cell.fidelity->attention_error[0], 0);
  EXPECT_GT(cell.fidelity->attention_error[1], 0);
}

TEST_F(LayerMapTest, WhatCannotBeIsRefused) {
  const TinyModel plain = Load(Shipped("full"));
  const ModelShape shape = plain.model->shape();
  const auto refusal = [&](const Method& method, ModelShape of) {
    const Budget budget = method.takes_budget ? Fraction(0.5) : Budget{};
    const Status status = CheckMethod(method, of, budget, 200);
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(refusal(Shipped("cla"), shape), "");
  EXPECT_THAT(
      refusal(Shipped("cla", {"prepare.map=0_0_1_1"}), shape),
      HasSubstr("prepare.share_layers: layer 2 reads the cache of layer 1, which has none"));
  EXPECT_THAT(refusal(Shipped("cla", {"prepare.map=0_0_3_3"}), shape),
              HasSubstr("layer 2 reads the cache of layer 3; expected its own"));
  EXPECT_THAT(refusal(Shipped("cla", {"prepare.map=0_0"}), shape), HasSubstr("has 4"));
  EXPECT_THAT(refusal(Shipped("cla", {"prepare.map=0_x_2_2"}), shape),
              HasSubstr("map is '0_x_2_2'; expected a layer's number"));
  EXPECT_THAT(refusal(Shipped("cla", {"prepare.caches=5"}), shape), HasSubstr("caches is 5"));
  ModelShape windowed = shape;
  windowed.windows = {0, 16, 0, 0};
  EXPECT_THAT(refusal(Shipped("cla"), windowed), HasSubstr("another window"));
  EXPECT_THAT(refusal(Shipped("kvsharer"), windowed), HasSubstr("different windows"));
  ModelShape shared = shape;
  shared.shared_caches = true;
  EXPECT_THAT(refusal(Shipped("kvsharer"), shared), HasSubstr("do so already"));
  for (const char* id : {"fastv", "minference", "sparq", "epic"}) {
    EXPECT_THAT(refusal(Shipped(id), shared), HasSubstr("read the caches of others")) << id;
  }
  const Method deeper = Shipped("fastv", {"prepare.id=share_layers", "thin.layer=1"});
  EXPECT_THAT(refusal(deeper, shape), HasSubstr("thin.fastv: drops rows between layers"));
}

// The search of the paper's code on the golden model, as scripts/goldens restate it.
TEST(KvSharerSearch, FindsTheMapOfTheReference) {
  const std::string folder = StrCat(KVG_TEST_DATA, "/golden/methods/");
  const std::string side_file = folder + "inputs/kvsharer.safetensors";
  const auto golden = ReadCalibration(side_file);
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  const Json params = *ParseJson((*golden)->params, side_file);
  Method method = Shipped("kvsharer", {StrCat("prepare.threshold=", params["threshold"].dump())});
  EXPECT_EQ(CalibratedParams(*method.prepare), (*golden)->params);
  const auto ops = MakeTestOps("cpu", 1);
  ModelOptions options;
  options.dtype = DType::kF32;
  const auto model = Model::Load(folder + "model", options, *ops);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::vector<int32_t> ids =
      ReadJsonFile(folder + "inputs/ids.json")->get<std::vector<int32_t>>();
  std::vector<std::vector<int32_t>> texts;
  for (int64_t i = 0; i < 4; ++i)
    texts.emplace_back(ids.begin() + 64 * i, ids.begin() + 64 * (i + 1));
  const auto tables = Calibrate(**model, *method.prepare, texts);
  ASSERT_TRUE(tables.ok()) << tables.error().message;
  EXPECT_EQ(tables->at("layers").values, (*golden)->tables.at("layers").values);
  // Afterwards the model is as it was.
  EXPECT_FALSE((*model)->shape().shared_caches);
  EXPECT_EQ((*model)->NewCache(8).layer_count(), 4);
}

// A budget in bytes is met with the bytes of the heads that are left, not of fewer.
TEST_F(LayerMapTest, ByteBudgetsCountThePreparedModelOnce) {
  const Json json =
      *ParseJson(R"({"id": "pooled", "title": "Pooled", "family": "selection", "version": 1,
      "stages": {"prepare": {"id": "mean_pool_heads", "heads": 2}, "score": {"id": "knorm"},
                 "reduce": {"id": "top_k"}}})",
                 "test");
  const Result<Method> pooled = ParseMethod(json, "test");
  ASSERT_TRUE(pooled.ok()) << pooled.error().message;
  const TinyModel model = Load(*pooled);
  ASSERT_LT(model.model->shape().kv_heads, model.model->checkpoint_shape().kv_heads);
  const EngineSample sample = {.id = "one",
                               .turns = {{.ids = RandomIds(160, 9), .max_new_tokens = 1}}};
  const Contender full = {.method = &*pooled, .budget = Fraction(1), .model = model.model.get()};
  const double whole = RunEngine({full}, {}, {sample}).at({0, 0}).record.bytes.payload;
  Contender half = full;
  half.budget = *Budget::Parse(StrCat(whole / 2 / 160, "B"));
  const CellResult cell = RunEngine({half}, {}, {sample}).at({0, 0});
  ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
  EXPECT_LE(cell.record.bytes.payload, 0.51 * whole);
  EXPECT_GE(cell.record.bytes.payload, 0.45 * whole);
}

}  // namespace
}  // namespace kvgauge
