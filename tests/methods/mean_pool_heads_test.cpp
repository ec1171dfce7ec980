// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "fake_weights.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

TEST(MeanPoolHeadsTest, MeansOfNeighbours) {
  const ModelShape shape = Wide(4, 6);
  FakeWeights weights(shape, true);
  const auto stage = PrepareOf("mean_pool_heads", R"({"heads": 2})");
  EXPECT_EQ(stage->ShapeAfter(shape).kv_heads, 2);
  ASSERT_TRUE(stage->Transform(weights).ok());
  EXPECT_EQ(weights.heads(), 2);
  for (const auto& [key, got] : weights.written) {
    const std::vector<float>& w = weights.weights.at(key);
    const std::vector<float>& b = weights.biases.at(key);
    ASSERT_EQ(got.size(), 2u * 4 * 6);
    for (int64_t g = 0; g < 2; ++g) {
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t upper = g * 8 + i, lower = upper + 4;
        EXPECT_NEAR(weights.written_biases.at(key)[g * 4 + i], (b[upper] + b[lower]) / 2, 1e-6);
        for (int64_t j = 0; j < 6; ++j) {
          EXPECT_NEAR(got[(g * 4 + i) * 6 + j], (w[upper * 6 + j] + w[lower * 6 + j]) / 2, 1e-6);
        }
      }
    }
  }
  EXPECT_EQ(weights.written.size(), 4u);
}

TEST(MeanPoolHeadsTest, AllHeadsAndHeadsThatDoNotDivide) {
  const ModelShape shape = Wide(4, 6);
  FakeWeights weights(shape, false);
  ASSERT_TRUE(PrepareOf("mean_pool_heads")->Transform(weights).ok());
  EXPECT_EQ(weights.heads(), 1);
  EXPECT_TRUE(weights.written_biases.empty());
  const auto three = PrepareOf("mean_pool_heads", R"({"heads": 3})");
  ASSERT_FALSE(three->Check(shape).ok());
  EXPECT_THAT(three->Check(shape).error().message, HasSubstr("must divide the model's 4"));
}

}  // namespace
}  // namespace kvgauge
