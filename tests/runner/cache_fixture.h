// SPDX-License-Identifier: Apache-2.0
// A cache without a model: random entries, what they should be, and a plain check of attention.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "runner/kv_cache.h"
#include "support/compare.h"

namespace kvgauge {

inline ModelConfig CacheConfig(int64_t layers, int64_t query_heads, int64_t kv_heads, int64_t dim) {
  ModelConfig config;
  config.query_heads = query_heads;
  config.kv_heads = kv_heads;
  config.key_dim = config.value_dim = dim;
  config.hidden_size = query_heads * dim;
  config.layers.resize(static_cast<size_t>(layers));
  config.rope.emplace().rotary_dim = dim;
  return config;
}

class CacheTest : public ::testing::Test {
 protected:
  static constexpr int64_t kLayers = 2, kHeads = 2, kQueryHeads = 4, kDim = 32;

  void SetUp() override { ops_ = std::move(*MakeOps("cpu", MakeThreadSettings(2))); }

  static KvCacheOptions Options(DType dtype = DType::kF32) {
    KvCacheOptions options;
    options.dtype = dtype;
    options.planned_length = 512;
    options.frequencies = ComputeRope(*CacheConfig(1, 1, 1, kDim).rope, 512);
    return options;
  }
  static KvCache NewCache(CachePools& pools, DType dtype = DType::kF32) {
    return KvCache(CacheConfig(kLayers, kQueryHeads, kHeads, kDim), Options(dtype), pools);
  }

  // Entry values depend on layer, position and seed alone.
  static std::vector<float> Rows(int64_t layer, int64_t first, int64_t rows, uint64_t seed) {
    std::vector<float> all;
    for (int64_t i = first; i < first + rows; ++i) {
      const std::vector<float> one =
          RandomValues(kHeads * kDim, seed + static_cast<uint64_t>(1000 * i + layer));
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  static Status Feed(KvCache& cache, int64_t rows, uint64_t seed = 1) {
    const int64_t first = cache.tokens();
    KVG_TRY(cache.Append(rows));
    for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
      const std::vector<float> k = Rows(layer, first, rows, seed);
      const std::vector<float> v = Rows(layer, first, rows, seed + 500);
      cache.Write(layer, View(k, {rows, kHeads, kDim}), View(v, {rows, kHeads, kDim}));
    }
    return {};
  }

  static std::vector<float> Keys(const KvCache& cache, int64_t layer, int64_t head) {
    std::vector<float> rows(static_cast<size_t>(cache.length(layer, head) * kDim));
    cache.ReadKeys(layer, head, 0, View(rows, {cache.length(layer, head), kDim}));
    return rows;
  }
  static std::vector<float> Values(const KvCache& cache, int64_t layer, int64_t head) {
    std::vector<float> rows(static_cast<size_t>(cache.length(layer, head) * kDim));
    cache.ReadValues(layer, head, 0, View(rows, {cache.length(layer, head), kDim}));
    return rows;
  }

  static std::vector<float> Picked(const std::vector<float>& rows,
                                   const std::vector<int32_t>& kept) {
    std::vector<float> out;
    for (const int32_t i : kept) {
      out.insert(out.end(), rows.begin() + i * kDim, rows.begin() + (i + 1) * kDim);
    }
    return out;
  }

  static HeadPlan Keep(const std::vector<int32_t>& kept) {
    HeadPlan plan;
    plan.keep = View(kept, {std::ssize(kept)});
    return plan;
  }

  // Attention of one query row over a layer.
  std::vector<float> Attend(const KvCache& cache, int64_t layer, const std::vector<float>& q) {
    std::vector<float> out(static_cast<size_t>(kQueryHeads * kDim));
    const AttentionItem item = {
        .rows = 1, .token_position = cache.tokens() - 1, .heads = cache.Layer(layer)};
    const AttentionShape shape = {.format = cache.format(),
                                  .query_heads = kQueryHeads,
                                  .kv_heads = kHeads,
                                  .scale = 0.2f,
                                  .rope = cache.rope(layer)};
    ops_->attention->Attend(shape, {&item, 1}, View(q, {1, kQueryHeads, kDim}),
                            View(out, {1, kQueryHeads, kDim}));
    return out;
  }

  // Attention over the entries as they are read back, all of them plain floats.
  std::vector<float> AttendDecoded(const KvCache& cache, int64_t layer, std::vector<float> q) {
    if (cache.format().dtype == DType::kF16) {  // as queries are rounded
      for (float& x : q) x = F16ToF32(F32ToF16(x));
    }
    std::vector<float> out(static_cast<size_t>(kQueryHeads * kDim));
    for (int64_t g = 0; g < kQueryHeads; ++g) {
      const int64_t h = g / (kQueryHeads / kHeads), n = cache.length(layer, h);
      const std::vector<float> keys = Keys(cache, layer, h), values = Values(cache, layer, h);
      const std::vector<float> weights = cache.LogWeights(layer, h);
      std::vector<double> score(static_cast<size_t>(n));
      double most = -1e30, total = 0;
      for (int64_t i = 0; i < n; ++i) {
        double dot = 0;
        for (int64_t d = 0; d < kDim; ++d) {
          dot += double{q[static_cast<size_t>(g * kDim + d)]} *
                 keys[static_cast<size_t>(i * kDim + d)];
        }
        score[static_cast<size_t>(i)] = 0.2 * dot + weights[static_cast<size_t>(i)];
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

  void ExpectAttendsAsRead(const KvCache& cache, int64_t layer, double bound = 2e-4) {
    const std::vector<float> q = RandomValues(kQueryHeads * kDim, 3, 0.3f);
    EXPECT_TRUE(AllWithin(Attend(cache, layer, q), AttendDecoded(cache, layer, q), bound));
  }

  // Blocks as the format makes them, in pages.
  int64_t PageBytes(DType dtype) const {
    const KvFormat format = {.dtype = dtype, .key_dim = kDim, .value_dim = kDim};
    return ops_->attention->KeyPageBytes(format) + ops_->attention->ValuePageBytes(format);
  }

  std::unique_ptr<Ops> ops_;
};

}  // namespace kvgauge
