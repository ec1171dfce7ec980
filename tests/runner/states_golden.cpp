// SPDX-License-Identifier: Apache-2.0
// Layers that keep a state of constant size: it belongs to the sequence, forks with it, goes on
// from turn to turn and into files, and no method touches it.
#include <gmock/gmock.h>

#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "runner/saved_cache.h"
#include "runner/speculate.h"
#include "support/compare.h"
#include "support/fixtures.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kStateTokens = 90;

class StatesTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string golden = StrCat(KVG_TEST_DATA, "/golden/models/", GetParam());
    ModelOptions options;
    options.dtype = DType::kF32;
    Result<std::unique_ptr<Model>> model = Model::Load(golden, options, *ops_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
  }

  // Logits of the next token behind rows up to `end`.
  std::vector<float> Next(KvCache& cache, int64_t end) {
    const int64_t begin = cache.tokens();
    EXPECT_TRUE(cache.Append(end - begin).ok());
    const SequenceStep step = {.cache = &cache, .prompt = &prompt_, .begin = begin, .end = end};
    return HostFloats(*ops_, model_->Forward({&step, 1}));
  }

  const std::unique_ptr<Ops> ops_ = MakeTestOps("cpu", 2);
  std::unique_ptr<Model> model_;
  const Prompt prompt_ = Prompt::FromTokens(RandomIds(kStateTokens, 5));
};

TEST_P(StatesTest, ForksGoOnByThemselves) {
  KvCache whole = model_->NewCache(kStateTokens), cache = model_->NewCache(kStateTokens);
  const std::vector<float> want = Next(whole, kStateTokens);
  Next(cache, 70);
  EXPECT_EQ(cache.state_count(), model_->config().state_count());
  EXPECT_EQ(cache.StateBytes(), model_->config().StateBytes());
  EXPECT_EQ(cache.layer_count(), model_->config().cache_count());
  KvCache first = cache.Fork(), second = cache.Fork();
  Next(first, 80);
  EXPECT_TRUE(SameBits(Next(first, kStateTokens), want));
  EXPECT_TRUE(SameBits(Next(second, kStateTokens), want)) << "a fork wrote into another's state";
  EXPECT_TRUE(SameBits(Next(cache, kStateTokens), want)) << "a fork wrote into its source's state";
}

TEST_P(StatesTest, ASequenceHasItsBitsInCompany) {
  KvCache alone = model_->NewCache(kStateTokens);
  Next(alone, 60);
  KvCache other = alone.Fork(), third = alone.Fork();
  const std::vector<float> want = Next(alone, 61);
  const Prompt different = Prompt::FromTokens(RandomIds(kStateTokens, 6));
  ASSERT_TRUE(other.Append(9).ok() && third.Append(1).ok());
  const SequenceStep steps[] = {{.cache = &other, .prompt = &different, .begin = 60, .end = 69},
                                {.cache = &third, .prompt = &prompt_, .begin = 60, .end = 61}};
  const std::vector<float> both = HostFloats(*ops_, model_->Forward(steps));
  EXPECT_TRUE(SameBits(std::span(both).last(want.size()), want));
}

TEST_P(StatesTest, SavedCachesCarryStates) {
  KvCache cache = model_->NewCache(kStateTokens);
  Next(cache, 60);
  const std::string bytes = *cache.Serialize();
  KvCache again = model_->NewCache(kStateTokens);
  ASSERT_TRUE(again.Deserialize(bytes).ok());
  EXPECT_EQ(*again.Serialize(), bytes);
  EXPECT_TRUE(SameBits(Next(again, kStateTokens), Next(cache, kStateTokens)));
  for (const int64_t cut : {int64_t{1}, model_->config().state->numbers() * 4 + 5}) {
    KvCache broken = model_->NewCache(kStateTokens);
    const Status status = broken.Deserialize(std::string_view(bytes).substr(0, bytes.size() - cut));
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("cache bytes"));
  }
}

TEST_P(StatesTest, ForgettingIsRefused) {
  KvCache cache = model_->NewCache(kStateTokens);
  Next(cache, 60);
  EXPECT_TRUE(cache.Truncate(60).ok());
  const Status status = cache.Truncate(59);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("cannot forget"));
  EXPECT_EQ(cache.tokens(), 60);
}

TEST_P(StatesTest, PoolsHoldThemAndAFullOneIsAnError) {
  CachePools::Limits limits;
  limits.device_bytes = model_->config().StateBytes() / 2;
  CachePools pools(*ops_, limits);
  KvCache small = model_->NewCache(kStateTokens, pools);
  EXPECT_FALSE(small.Append(1).ok());
  EXPECT_EQ(small.tokens(), 0);
  CachePools open(*ops_);
  KvCache cache = model_->NewCache(kStateTokens, open);
  Next(cache, 60);
  EXPECT_GE(open.of(Tier::kDevice).used_bytes(), cache.Bytes().resident() + cache.StateBytes());
}

TEST_P(StatesTest, MethodsWorkOnTheCachesThatThereAre) {
  const Method full = Shipped("full"), streaming = Shipped("streaming_llm");
  const Method snapkv = Shipped("snapkv", {"score.window=8", "protect.recent=8"});
  const Method codes = Shipped("kivi_2bit"), h2o = Shipped("h2o");
  const Method reader = Shipped("quest", {"read.dense_layers=0", "read.tokens=32"});
  std::vector<Contender> contenders;
  for (const Method* method : {&full, &snapkv, &streaming, &codes, &h2o, &reader}) {
    const bool full_alone = model_->config().cache_count() == 0 || model_->config().made_keys;
    if (method != &full && full_alone) continue;
    contenders.push_back({.method = method,
                          .budget = method->takes_budget ? Fraction(0.5) : Budget{},
                          .model = model_.get()});
  }
  const EngineSample sample = {.id = "one",
                               .turns = {{.ids = RandomIds(130, 9), .max_new_tokens = 6},
                                         {.ids = RandomIds(20, 10), .max_new_tokens = 5}}};
  for (const CompressAt when : {CompressAt::kPrompt, CompressAt::kTurn}) {
    const EngineOptions options = {.compress_at = when};
    const Cells all = RunEngine(contenders, options, {sample});
    for (int64_t i = 0; i < std::ssize(contenders); ++i) {
      const CellResult& cell = all.at({0, i});
      ASSERT_TRUE(cell.status.ok()) << i << ": " << cell.status.error().message;
      EXPECT_EQ(std::ssize(cell.record.entries_after), model_->config().cache_count());
      const CellResult alone =
          RunEngine({contenders[static_cast<size_t>(i)]}, options, {sample}).at({0, 0});
      for (size_t turn = 0; turn < 2; ++turn) {
        EXPECT_EQ(alone.turns[turn].ids, cell.turns[turn].ids) << i << ", turn " << turn;
      }
    }
    // An answer of the full cache is that of the model itself, whatever goes on beside it.
    GenerateOptions generate;
    generate.max_new_tokens = 6;
    const Result<GenerateResult> own =
        Generate(*model_, Prompt::FromTokens(sample.turns[0].ids), generate, nullptr);
    ASSERT_TRUE(own.ok());
    EXPECT_EQ(all.at({0, 0}).turns[0].ids, own->ids);
  }
}

TEST_P(StatesTest, WhatNeedsEveryLayersCacheIsRefused) {
  const ModelShape shape = model_->shape();
  EXPECT_EQ(shape.state_bytes, model_->config().StateBytes());
  const auto refusal = [&](const Method& method) {
    const Budget budget = method.takes_budget ? Fraction(0.5) : Budget{};
    const Status status = CheckMethod(method, shape, budget, 200);
    return status.ok() ? "" : status.error().message;
  };
  if (model_->config().cache_count() == 0) {
    EXPECT_EQ(refusal(Shipped("full")), "");
    for (const char* id : {"snapkv", "kivi_2bit", "h2o", "quest", "fastv", "cla", "mla_latent"}) {
      EXPECT_THAT(refusal(Shipped(id)), HasSubstr("has no cache")) << id;
      EXPECT_THAT(refusal(Shipped(id)), HasSubstr("use method full")) << id;
    }
    return;
  }
  if (shape.made_keys) {
    EXPECT_EQ(refusal(Shipped("full")), "");
    for (const char* id : {"snapkv", "kivi_2bit", "h2o", "quest", "fastv", "cla", "xkv"}) {
      EXPECT_THAT(refusal(Shipped(id)), HasSubstr("make keys and values anew")) << id;
      EXPECT_THAT(refusal(Shipped(id)), HasSubstr("only its full cache is run")) << id;
    }
    return;
  }
  EXPECT_EQ(refusal(Shipped("snapkv")), "");
  for (const char* id : {"fastv", "minference", "epic", "selective_context"}) {
    EXPECT_THAT(refusal(Shipped(id)), HasSubstr("state of constant size")) << id;
  }
  for (const char* id : {"cla", "kvsharer"}) {
    EXPECT_THAT(refusal(Shipped(id)), HasSubstr("keep a state of constant size instead")) << id;
  }
  const Status draft = CheckDraft(Shipped("snapkv"), shape, Fraction(0.5), 200);
  ASSERT_FALSE(draft.ok());
  EXPECT_THAT(draft.error().message, HasSubstr("cannot forget tokens"));
}

INSTANTIATE_TEST_SUITE_P(All, StatesTest,
                         ::testing::Values("qwen3_next", "bamba", "falcon_h1", "mamba2",
                                           "nemotron_h", "rwkv", "rwkv6", "rwkv7", "retnet",
                                           "goldfinch", "yoco"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace kvgauge
