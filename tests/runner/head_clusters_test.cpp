// SPDX-License-Identifier: Apache-2.0
// Heads that share keys and attention: what the cache holds, and the queries that tell them.
#include "methods/layouts/head_clusters.h"

#include <gmock/gmock.h>

#include "runner/capture.h"
#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "support/compare.h"
#include "support/test_ops.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class HeadClustersTest : public ::testing::Test {
 protected:
  HeadClustersTest() : tiny_(MakeTinyModel("mha", 1)), model_(*tiny_.model) {}

  // The first `end` rows of the prompt, in chunks.
  void Read(KvCache& cache, int64_t end, int64_t chunk, LayerHook* hook = nullptr) {
    while (cache.tokens() < end) {
      const int64_t begin = cache.tokens(), next = std::min(end, begin + chunk);
      ASSERT_TRUE(cache.Append(next - begin).ok());
      const SequenceStep step = {
          .cache = &cache, .prompt = &prompt_, .begin = begin, .end = next, .hook = hook};
      const Tensor logits = model_.Forward({&step, 1});
      logits_ = HostFloats(model_.ops(), logits);
    }
  }
  static StorePlan Clusters(std::vector<int64_t> first) {
    HeadClusters layout;
    layout.first = std::move(first);
    return PlanOf(std::move(layout));
  }
  std::vector<float> KeysOf(const KvCache& cache, int64_t layer, int64_t head) {
    const int64_t n = cache.length(layer, head), dim = cache.format().key_dim;
    std::vector<float> rows(static_cast<size_t>(n * dim));
    cache.ReadKeys(layer, head, 0, View(rows, {n, dim}));
    return rows;
  }

  TinyModel tiny_;
  Model& model_;
  const Prompt prompt_ = Prompt::FromTokens(RandomIds(90, 3));
  std::vector<float> logits_;  // of the last row that was read
};

TEST_F(HeadClustersTest, TheFirstRowsComeWhateverTheChunks) {
  const Needs needs = {.first_rows = 5};
  std::vector<std::vector<float>> whole;
  for (const int64_t chunk : {512, 1, 2, 7}) {
    KvCache cache = model_.NewCache(90);
    PrefillCapture capture(model_.cache_config(), cache, needs, 90);
    Read(cache, 90, chunk, &capture);
    ASSERT_TRUE(capture.status().ok());
    for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
      const std::vector<float> got = HostFloats(model_.ops(), capture.FirstQueries(layer, 5));
      ASSERT_EQ(std::ssize(got), 5 * model_.config().query_heads * model_.config().key_dim);
      if (chunk == 512) {
        whole.push_back(got);
      } else {
        EXPECT_TRUE(SameBits(got, whole[static_cast<size_t>(layer)])) << chunk;
      }
    }
    EXPECT_LE(capture.bytes(), PrefillCapture::PlannedBytes(model_.cache_config(), needs, 90));
  }
  // A prompt may have fewer.
  KvCache cache = model_.NewCache(3);
  PrefillCapture capture(model_.cache_config(), cache, needs, 3);
  Read(cache, 3, 2, &capture);
  const std::vector<float> got = HostFloats(model_.ops(), capture.FirstQueries(0, 3));
  EXPECT_TRUE(SameBits(got, std::span(whole[0]).first(got.size())));
}

TEST_F(HeadClustersTest, KeysOfTheOthersAreGone) {
  const int64_t heads = model_.config().kv_heads;
  ASSERT_EQ(heads, 4);
  KvCache plain = model_.NewCache(90);
  Read(plain, 70, 512);
  KvCache cache = plain.Fork();
  for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
    ASSERT_TRUE(cache.Store(layer, Clusters({0, 1, 0, 1})).ok());
  }
  EXPECT_EQ(4 * cache.Bytes().payload, 3 * plain.Bytes().payload);
  // A cluster of each head is the same model, to the bit.
  KvCache each = plain.Fork();
  for (int64_t layer = 0; layer < each.layer_count(); ++layer) {
    ASSERT_TRUE(each.Store(layer, Clusters({0, 1, 2, 3})).ok());
  }
  Read(plain, 80, 3);
  const std::vector<float> want = logits_;
  Read(each, 80, 3);
  EXPECT_TRUE(SameBits(logits_, want));
  Read(cache, 80, 3);
  EXPECT_FALSE(SameBits(logits_, want));
  for (const auto& [head, first] : std::vector<std::pair<int64_t, int64_t>>{{2, 0}, {3, 1}}) {
    EXPECT_TRUE(SameBits(KeysOf(cache, 1, head), KeysOf(cache, 1, first)));
  }
  // Forgets, forks and comes back from bytes.
  ASSERT_TRUE(cache.Truncate(75).ok());
  const Result<std::string> bytes = cache.Serialize();
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  KvCache again = model_.NewCache(90);
  ASSERT_TRUE(again.Deserialize(*bytes).ok());
  KvCache fork = cache.Fork();
  Read(cache, 85, 1);
  const std::vector<float> after = logits_;
  for (KvCache* other : {&again, &fork}) {
    Read(*other, 85, 1);
    EXPECT_TRUE(SameBits(logits_, after));
  }
  for (size_t at = 1; at < bytes->size(); at += 97) {
    KvCache cut = model_.NewCache(90);
    EXPECT_FALSE(cut.Deserialize(std::string_view(*bytes).substr(0, at)).ok()) << at;
  }
}

TEST_F(HeadClustersTest, WhatIsNoClusteringIsRefused) {
  KvCache cache = model_.NewCache(90);
  Read(cache, 10, 512);
  for (const std::vector<int64_t>& first : std::vector<std::vector<int64_t>>{
           {}, {0, 0, 0}, {0, 0, 1, 0}, {0, 2, 2, 2}, {1, 1, 1, 1}, {-1, 0, 0, 0}}) {
    KvCache fork = cache.Fork();
    EXPECT_THAT(fork.Store(0, Clusters(first)).error().message,
                HasSubstr("the first head of its cluster for each of 4 KV heads"));
  }
  const Method evicts = Shipped("snapkv", {"store.id=chai"});
  EXPECT_THAT(CheckMethod(evicts, model_.shape(), Fraction(0.5), 90).error().message,
              HasSubstr("store.chai: its entries belong to several heads"));
  EXPECT_THAT(
      CheckMethod(Shipped("chai", {"store.counts=4_5"}), model_.shape(), {}, 90).error().message,
      HasSubstr("counts is '4_5'; expected for each of 2 layers a number from 1 to the model's 4"));
  EXPECT_TRUE(CheckMethod(Shipped("chai", {"store.counts=4_1"}), model_.shape(), {}, 90).ok());
  ModelShape one = model_.shape();
  one.kv_heads = 1;
  EXPECT_THAT(CheckMethod(Shipped("chai"), one, {}, 90).error().message,
              HasSubstr("leaves each of the model's 1 KV heads its keys"));
}

}  // namespace
}  // namespace kvgauge
