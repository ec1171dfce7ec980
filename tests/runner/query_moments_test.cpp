// SPDX-License-Identifier: Apache-2.0
// Moments of queries before rotation, from rotated queries in chunks of any size.
#include "src/compress/query_moments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runner/rope.h"
#include "support/compare.h"
#include "support/test_ops.h"

namespace kvgauge {
namespace {

constexpr int64_t kHeads = 3, kDim = 16, kMomentTokens = 150, kLayers = 2;

ModelConfig Config(RopeLayout layout) {
  ModelConfig config;
  config.query_heads = kHeads;
  config.kv_heads = 1;
  config.key_dim = config.value_dim = kDim;
  config.layers.resize(kLayers);
  config.rope.emplace().rotary_dim = kDim;
  config.rope->layout = layout;
  return config;
}

// [tokens, heads, dim], turned by plain loops and scaled.
std::vector<float> Turned(const std::vector<float>& raw, RopeLayout layout,
                          const RopeFrequencies& frequencies) {
  std::vector<float> out = raw;
  const bool half = layout == RopeLayout::kHalf;
  for (int64_t t = 0; t < kMomentTokens; ++t) {
    for (int64_t h = 0; h < kHeads; ++h) {
      const float* x = &raw[(t * kHeads + h) * kDim];
      float* y = &out[(t * kHeads + h) * kDim];
      for (int64_t i = 0; i < kDim / 2; ++i) {
        const int64_t a = half ? i : 2 * i, b = half ? i + kDim / 2 : 2 * i + 1;
        const double angle = static_cast<double>(t) * frequencies.inverse[i];
        const double c = std::cos(angle) * frequencies.attention_factor;
        const double s = std::sin(angle) * frequencies.attention_factor;
        y[a] = static_cast<float>(x[a] * c - x[b] * s);
        y[b] = static_cast<float>(x[b] * c + x[a] * s);
      }
    }
  }
  return out;
}

TEST(QueryMomentsTest, PlainLoopsWhateverTheChunks) {
  for (const RopeLayout layout : {RopeLayout::kHalf, RopeLayout::kInterleaved}) {
    const ModelConfig config = Config(layout);
    RopeFrequencies frequencies = ComputeRope(*config.rope, kMomentTokens);
    frequencies.attention_factor = 1.25;  // undone as well
    std::vector<float> raw = RandomValues(kMomentTokens * kHeads * kDim, 5, 0.2f);
    for (size_t i = 0; i < raw.size(); ++i) raw[i] += 3.0f;  // a mean that would swamp the rest
    const std::vector<float> turned = Turned(raw, layout, frequencies);
    const auto ops = MakeTestOps("cpu", 2);
    const Buffer memory = ops->memory->Allocate(std::ssize(turned) * 4);
    const Tensor all = memory.As(DType::kF32, {kMomentTokens, kHeads, kDim});
    ops->memory->Copy(View(turned, {kMomentTokens, kHeads, kDim}), all);
    const Buffer covariance_memory = ops->memory->Allocate(kHeads * kDim * kDim * 4);
    const Tensor covariance = covariance_memory.As(DType::kF32, {kHeads, kDim, kDim});
    for (const int64_t from : {0, 4, 149}) {
      std::vector<float> means(kHeads * kDim), products(kHeads * kDim * kDim);
      const auto n = static_cast<double>(kMomentTokens - from);
      for (int64_t h = 0; h < kHeads; ++h) {
        std::vector<double> mean(kDim);
        const auto at = [&](int64_t t, int64_t c) { return raw[(t * kHeads + h) * kDim + c]; };
        for (int64_t c = 0; c < kDim; ++c) {
          for (int64_t t = from; t < kMomentTokens; ++t) mean[c] += at(t, c) / n;
          means[h * kDim + c] = static_cast<float>(mean[c]);
        }
        for (int64_t a = 0; a < kDim; ++a) {
          for (int64_t b = 0; b < kDim; ++b) {
            double sum = 0;
            for (int64_t t = from; t < kMomentTokens; ++t) {
              sum += (at(t, a) - mean[a]) * (at(t, b) - mean[b]);
            }
            products[(h * kDim + a) * kDim + b] = static_cast<float>(sum / n);
          }
        }
      }
      for (const int64_t chunk : {kMomentTokens, int64_t{64}, int64_t{7}}) {
        QueryMoments moments(config, from, *ops);
        for (int64_t begin = 0; begin < kMomentTokens; begin += chunk) {
          const int64_t end = std::min(begin + chunk, kMomentTokens);
          for (int64_t layer = 0; layer < kLayers; ++layer) {
            moments.Add(layer, all.Slice(begin, end), begin, frequencies);
          }
        }
        moments.Covariance(1, covariance);
        EXPECT_TRUE(AllWithin(HostFloats(*ops, moments.Mean(1)), means, 1e-5)) << from << chunk;
        EXPECT_TRUE(AllWithin(HostFloats(*ops, covariance), products, 2e-5)) << from << chunk;
        EXPECT_LE(moments.bytes(), QueryMoments::PlannedBytes(config, chunk));
      }
    }
  }
}

}  // namespace
}  // namespace kvgauge
