// SPDX-License-Identifier: Apache-2.0
// Layers whose keys and values are made anew of what a cache holds: it holds one row a token, and
// nothing else of a sequence grows.
#include <gtest/gtest.h>

#include "runner/engine_fixture.h"
#include "src/engine/pass_bytes.h"
#include "support/compare.h"
#include "support/fixtures.h"

namespace kvgauge {
namespace {

class MadeKeysTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ModelOptions options;
    options.dtype = DType::kBF16;
    Result<std::unique_ptr<Model>> model =
        Model::Load(StrCat(KVG_TEST_DATA, "/golden/models/goldfinch"), options, *ops_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
  }

  std::vector<float> Next(KvCache& cache, const Prompt& prompt, int64_t end) {
    const int64_t begin = cache.tokens();
    EXPECT_TRUE(cache.Append(end - begin).ok());
    const SequenceStep step = {.cache = &cache, .prompt = &prompt, .begin = begin, .end = end};
    return HostFloats(*ops_, model_->Forward({&step, 1}));
  }

  const std::unique_ptr<Ops> ops_ = MakeTestOps("cpu", 2);
  std::unique_ptr<Model> model_;
};

TEST_F(MadeKeysTest, ACacheHoldsOneRowATokenForAllLayers) {
  const Prompt prompt = Prompt::FromTokens(RandomIds(200, 3));
  CachePools pools(*ops_);
  KvCache cache = model_->NewCache(200, pools);
  EXPECT_EQ(cache.layer_count(), 1);
  EXPECT_EQ(cache.kv_heads(), 1);
  EXPECT_FALSE(cache.mla_latent());
  Next(cache, prompt, 128);
  const KvBytes some = cache.Bytes();
  EXPECT_EQ(some.payload, 128 * 8 * 2);
  EXPECT_EQ(some.resident(), some.payload) << "two whole pages";
  const int64_t states = cache.StateBytes(), used = pools.of(Tier::kDevice).used_bytes();
  Next(cache, prompt, 192);
  EXPECT_EQ(cache.Bytes().payload, 192 * 8 * 2);
  EXPECT_EQ(cache.StateBytes(), states);
  // One page of rows more, and nothing else.
  EXPECT_EQ(pools.of(Tier::kDevice).used_bytes() - used, 64 * 8 * 2);
}

// Beside the cache a pass takes the keys and values of one layer, which the plan of a run counts.
TEST_F(MadeKeysTest, APlanCountsWhatIsMade) {
  const ModelConfig& config = model_->config();
  const int64_t page = 2 * 64 * config.hidden_size * 2;
  EXPECT_EQ(MadeBytes(config, DType::kBF16, 1000) - MadeBytes(config, DType::kBF16, 936), page);
  EXPECT_GT(MadeBytes(config, DType::kBF16, 64), page);
  ModelConfig other = config;
  other.made_keys.reset();
  EXPECT_EQ(MadeBytes(other, DType::kBF16, 1000), 0);
}

// The same rows and states, beside other tokens: keys and values are made of both.
TEST_F(MadeKeysTest, TokensAreReadWithTheRows) {
  std::vector<int32_t> ids = RandomIds(90, 3);
  const Prompt prompt = Prompt::FromTokens(ids);
  ids[40] = (ids[40] + 1) % 101;
  const Prompt other = Prompt::FromTokens(ids);
  KvCache cache = model_->NewCache(90);
  Next(cache, prompt, 80);
  KvCache same = model_->NewCache(90), fork = cache.Fork();
  ASSERT_TRUE(same.Deserialize(*cache.Serialize()).ok());
  const std::vector<float> want = Next(cache, prompt, 81);
  EXPECT_TRUE(SameBits(Next(same, prompt, 81), want));
  EXPECT_FALSE(SameBits(Next(fork, other, 81), want));
}

}  // namespace
}  // namespace kvgauge
