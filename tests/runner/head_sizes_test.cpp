// SPDX-License-Identifier: Apache-2.0
// Layers whose KV heads have several sizes: what is refused, what a cache takes, and what its bytes
// fit.
#include <gtest/gtest.h>

#include <string>

#include "core/json.h"
#include "core/strings.h"
#include "methods/method.h"
#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "support/compare.h"
#include "support/tiny_models.h"

namespace kvgauge {
namespace {

constexpr const char* kTwoSizes = "two_sizes";
constexpr int64_t kHeldTokens = 70;

KvCache PrefilledTwoSizes(Model& model) {
  const Prompt prompt = Prompt::FromTokens(RandomIds(kHeldTokens, 3));
  KvCache cache = model.NewCache(kHeldTokens);
  const Status status = Prefill(model, prompt, cache, Model::kChunkRows, false,
                                [](const Tensor&) -> Status { return {}; });
  EXPECT_TRUE(status.ok());
  return cache;
}

// Two heads of 32 dims in one layer, one of 64 in the other.
TEST(HeadSizes, EachLayerTakesItsOwn) {
  const TinyModel tiny = MakeTinyModel(kTwoSizes);
  const KvCache cache = PrefilledTwoSizes(*tiny.model);
  EXPECT_EQ(cache.kv_heads(0), 2);
  EXPECT_EQ(cache.kv_heads(1), 1);
  EXPECT_EQ(cache.format(0).key_dim, 32);
  EXPECT_EQ(cache.format(1).value_dim, 64);
  const int64_t token_bytes = 4 * (2 * (32 + 32) + (64 + 64));
  EXPECT_EQ(cache.Bytes().payload, kHeldTokens * token_bytes);
  EXPECT_EQ(tiny.model->config().KvBytesPerToken(DType::kF32), token_bytes);
  EXPECT_EQ(tiny.model->shape().TokenBytes(), token_bytes);
  const ModelShape own = tiny.model->shape().OfLayer(1);
  EXPECT_EQ(own.kv_heads, 1);
  EXPECT_EQ(own.key_dim, 64);
  EXPECT_EQ(own.rotary_dim, 64);
  EXPECT_EQ(own.group(), 4);
}

TEST(HeadSizes, BytesFitTheSameSizesOnly) {
  const TinyModel tiny = MakeTinyModel(kTwoSizes), other = MakeTinyModel("gqa");
  const KvCache cache = PrefilledTwoSizes(*tiny.model);
  const Result<std::string> bytes = cache.Serialize();
  ASSERT_TRUE(bytes.ok());
  KvCache again = tiny.model->NewCache(kHeldTokens);
  ASSERT_TRUE(again.Deserialize(*bytes).ok());
  EXPECT_EQ(*again.Serialize(), *bytes);
  KvCache even = other.model->NewCache(kHeldTokens);
  EXPECT_FALSE(even.Deserialize(*bytes).ok());
  KvCache uneven = tiny.model->NewCache(kHeldTokens);
  EXPECT_FALSE(uneven.Deserialize(*other.model->NewCache(kHeldTokens).Serialize()).ok());
}

// YOCO's windows of four heads below, and above them layers that read one cache of one head.
TEST(HeadSizes, ASharedCacheOfAnotherSizeHasItsBitsInCompany) {
  const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 2);
  const Result<std::unique_ptr<Model>> model =
      Model::Load(StrCat(KVG_TEST_DATA, "/golden/models/yoco_window"), {}, *ops);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const Prompt prompt = Prompt::FromTokens(RandomIds(80, 3, 101)),
               other = Prompt::FromTokens(RandomIds(80, 4, 101));
  const auto read = [&](KvCache& cache, const Prompt& of, int64_t end) {
    const int64_t begin = cache.tokens();
    EXPECT_TRUE(cache.Append(end - begin).ok());
    return SequenceStep{.cache = &cache, .prompt = &of, .begin = begin, .end = end};
  };
  const auto forward = [&](std::span<const SequenceStep> steps) {
    return HostFloats(*ops, (*model)->Forward(steps));
  };
  KvCache alone = (*model)->NewCache(80), beside = (*model)->NewCache(80);
  const SequenceStep first = read(alone, prompt, 60), second = read(beside, other, 21);
  forward({&first, 1});
  forward({&second, 1});
  EXPECT_EQ(alone.layer_count(), 4);
  EXPECT_EQ(alone.kv_heads(0), 4);
  EXPECT_EQ(alone.kv_heads(3), 1);
  KvCache fork = alone.Fork(), saved = (*model)->NewCache(80);
  ASSERT_TRUE(saved.Deserialize(*alone.Serialize()).ok());
  const SequenceStep step = read(alone, prompt, 61), again = read(saved, prompt, 61);
  const std::vector<float> want = forward({&step, 1});
  EXPECT_TRUE(SameBits(forward({&again, 1}), want));
  const SequenceStep both[] = {read(beside, other, 30), read(fork, prompt, 61)};
  EXPECT_TRUE(SameBits(std::span<const float>(forward(both)).last(want.size()), want));
}

TEST(HeadSizes, StagesOfOneSizeAreRefusedByName) {
  const ModelShape shape = TinyShape(kTwoSizes);
  const auto refusal = [&](const char* id, const std::vector<std::string>& overrides = {}) {
    const Result<Method> method =
        LoadMethod(id, StrCat(KVG_SOURCE_DIR, "/configs/methods"), overrides);
    EXPECT_TRUE(method.ok()) << id;
    const Budget budget =
        method->takes_budget ? Budget{Budget::Kind::kFraction, 0.5} : Budget{Budget::Kind::kNone};
    const Status status = CheckMethod(*method, shape, budget, 100);
    return status.ok() ? std::string() : status.error().message;
  };
  const std::string ada = refusal("adakv");
  EXPECT_NE(ada.find("allocate.ada"), std::string::npos) << ada;
  EXPECT_NE(ada.find("2 KV heads of 32 dims in layer 0, 1 of 64 in layer 1"), std::string::npos)
      << ada;
  EXPECT_EQ(refusal("snapkv"), "");
  EXPECT_EQ(refusal("kivi_2bit"), "");
  EXPECT_EQ(refusal("full"), "");
}

}  // namespace
}  // namespace kvgauge
