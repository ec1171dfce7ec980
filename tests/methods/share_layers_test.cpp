// SPDX-License-Identifier: Apache-2.0
// Stages that change which layer or head has keys and values: the maps and the projections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "fake_view.h"
#include "fake_weights.h"
#include "methods/calibration.h"
#include "methods/layer_map.h"
#include "methods/layouts/head_clusters.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kKeys = WeightView::Matrix::kKey, kQueries = WeightView::Matrix::kQuery,
               kOutputs = WeightView::Matrix::kOutput, kValues = WeightView::Matrix::kValue;

ModelShape Deep(int64_t layers) {
  ModelShape shape = SmallShape(layers, 2, 2, 4);
  shape.hidden_size = 6;
  return shape;
}

TEST(LayerMapSteps, ChainsEndWhereALayerReadsItsOwn) {
  LayerMap map = OwnCaches(5);
  Share(map, 3, 1);
  Share(map, 4, 3);
  EXPECT_THAT(map, ElementsAre(0, 1, 2, 1, 1));
  Share(map, 1, 0);
  EXPECT_THAT(map, ElementsAre(0, 0, 2, 0, 0));
}

TEST(ShareLayersTest, Maps) {
  const ModelShape shape = Deep(7);
  const auto reads = [&](const std::string& params) {
    FakeWeights weights(shape, false);
    const auto stage = PrepareOf("share_layers", params);
    EXPECT_TRUE(stage->Check(shape).ok()) << params;
    EXPECT_TRUE(stage->Transform(weights).ok());
    EXPECT_TRUE(weights.written.empty()) << params;
    const std::set<int64_t> owners(weights.reads.begin(), weights.reads.end());
    EXPECT_EQ(stage->ShapeAfter(shape).layers, std::ssize(owners)) << params;
    return weights.reads;
  };
  EXPECT_THAT(reads("{}"), ElementsAre(0, 0, 2, 2, 4, 4, 6));
  EXPECT_THAT(reads(R"({"factor": 3})"), ElementsAre(0, 0, 0, 3, 3, 3, 6));
  EXPECT_THAT(reads(R"({"factor": 1})"), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  // 0, int(7 / 3) and int(14 / 3), as MLKV spreads them.
  EXPECT_THAT(reads(R"({"caches": 3})"), ElementsAre(0, 0, 2, 2, 4, 4, 4));
  EXPECT_THAT(reads(R"({"map": "0_1_2_0_1_2_2"})"), ElementsAre(0, 1, 2, 0, 1, 2, 2));
}

TEST(ShareLayersTest, Projections) {
  const ModelShape shape = Deep(3);
  const std::string map = R"("map": "0_0_0", )";
  for (const bool halves : {false, true}) {
    FakeWeights weights(shape, true);
    const auto stage = PrepareOf("share_layers", "{" + map + R"("heads": 0, "weights": )" +
                                                     (halves ? R"("halves"})" : R"("mean"})"));
    ASSERT_TRUE(stage->Transform(weights).ok());
    EXPECT_EQ(weights.heads(), 1);
    EXPECT_EQ(stage->ShapeAfter(shape).kv_heads, 1);
    const std::vector<double> shares =
        halves ? std::vector<double>{0.25, 0.25, 0.5} : std::vector<double>(3, 1.0 / 3);
    for (const auto matrix : {kKeys, kValues}) {
      for (size_t i = 0; i < 4 * 6; ++i) {
        double want = 0, want_bias = 0;
        for (int64_t l = 0; l < 3; ++l) {
          const auto& w = weights.weights.at({l, matrix});
          const auto& b = weights.biases.at({l, matrix});
          want += shares[l] * (double{w[i]} + w[i + 24]) / 2;
          want_bias += shares[l] * (double{b[i % 4]} + b[i % 4 + 4]) / 2;
        }
        EXPECT_NEAR(weights.written.at({0, matrix})[i], want, 1e-6);
        EXPECT_NEAR(weights.written_biases.at({0, matrix})[i % 4], want_bias, 1e-6);
      }
    }
  }
}

TEST(ShareLayersTest, HeadsMustDivide) {
  const auto stage = PrepareOf("share_layers", R"({"heads": 3})");
  EXPECT_THAT(stage->Check(Deep(4)).error().message,
              HasSubstr("heads 3 must divide the model's 2"));
}

// Pairs by how unlike their projections are, and how many.
TEST(KvSharerTest, WithoutASideFile) {
  const ModelShape shape = Deep(6);
  FakeWeights weights(shape, false);
  // Layers 1 and 4 are far from all others, on either side.
  for (const auto matrix : {kKeys, kValues}) {
    for (float& x : weights.weights.at({1, matrix})) x -= 90;
    for (float& x : weights.weights.at({4, matrix})) x += 100;
  }
  const auto stage = PrepareOf("kvsharer", R"({"shared": 2})");
  ASSERT_TRUE(stage->Check(shape).ok());
  EXPECT_EQ(stage->ShapeAfter(shape).layers, 4);
  ASSERT_TRUE(stage->Transform(weights).ok());
  EXPECT_EQ(weights.reads[4], weights.reads[1]);
  EXPECT_EQ(std::set<int64_t>(weights.reads.begin(), weights.reads.end()).size(), 4u);
  // At most half.
  EXPECT_EQ(PrepareOf("kvsharer", R"({"shared": 5})")->ShapeAfter(shape).layers, 3);
}

TEST(KvSharerTest, SideFiles) {
  const ModelShape shape = Deep(4);
  const auto with = [&](std::vector<float> reads) {
    auto stage = PrepareOf("kvsharer");
    auto calibration = std::make_shared<Calibration>();
    calibration->path = "map.safetensors";
    calibration->tables["layers"] = {{static_cast<int64_t>(reads.size())}, reads};
    stage->Use(calibration);
    return stage;
  };
  const auto good = with({0, 1, 1, 0});
  ASSERT_TRUE(good->Check(shape).ok());
  EXPECT_EQ(good->ShapeAfter(shape).layers, 2);
  FakeWeights weights(shape, false);
  ASSERT_TRUE(good->Transform(weights).ok());
  EXPECT_THAT(weights.reads, ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(with({0, 1, 1})->Check(shape).error().message, HasSubstr("needs [4]"));
  EXPECT_THAT(with({0, 1, 1.5, 0})->Check(shape).error().message, HasSubstr("holds 1.5"));
  EXPECT_THAT(with({0, 2, 2, 0})->Check(shape).error().message,
              HasSubstr("map.safetensors: layer 1 reads the cache of layer 2"));
}

// Heads 0, 2 and 3 are alike, and so is nobody else.
TEST(UnevenGroupsTest, HeadsThatAreAlikeBecomeOne) {
  ModelShape shape = SmallShape(1, 5, 2, 4);
  shape.hidden_size = 6;
  for (const char* measure : {"error", "cosine"}) {
    FakeWeights weights(shape, true, true);
    for (const auto matrix : {kKeys, kValues}) {
      std::vector<float>& w = weights.weights.at({0, matrix});
      for (size_t i = 0; i < 24; ++i) {
        w[2 * 24 + i] = w[i] + 0.01f;
        w[3 * 24 + i] = w[i] - 0.01f;
      }
    }
    const auto stage = PrepareOf(
        "uneven_groups", StrCat(R"({"groups": 3, "most": 3, "measure": ")", measure, R"("})"));
    ASSERT_TRUE(stage->Check(shape).ok());
    const ModelShape after = stage->ShapeAfter(shape);
    EXPECT_EQ(after.kv_heads, 3);
    EXPECT_EQ(after.query_heads, 18);  // groups of 3 heads of 2 queries
    ASSERT_TRUE(stage->Transform(weights).ok());
    EXPECT_EQ(weights.heads(), 3);
    EXPECT_EQ(weights.query_heads(), 18);
    const auto& keys = weights.written.at({0, kKeys});
    const auto& was = weights.weights.at({0, kKeys});
    for (size_t i = 0; i < 24; ++i) {
      EXPECT_NEAR(keys[i], was[i], 1e-5);        // the mean of the three
      EXPECT_EQ(keys[24 + i], was[24 + i]);      // head 1
      EXPECT_EQ(keys[48 + i], was[4 * 24 + i]);  // head 4
    }
    // Blocks of a head's queries, in the order of groups; what comes again counts nothing.
    const int64_t places[] = {0, 2, 3, 1, 1, 1, 4, 4, 4};
    const auto& queries = weights.written.at({0, kQueries});
    const auto& outputs = weights.written.at({0, kOutputs});
    for (int64_t place = 0; place < 9; ++place) {
      const bool again = place % 3 > 0 && places[place] == places[place - 1];
      for (int64_t i = 0; i < 48; ++i) {
        EXPECT_EQ(queries[place * 48 + i],
                  weights.weights.at({0, kQueries})[places[place] * 48 + i]);
      }
      for (int64_t row = 0; row < 6; ++row) {
        for (int64_t i = 0; i < 8; ++i) {
          const float want =
              again ? 0 : weights.weights.at({0, kOutputs})[row * 40 + places[place] * 8 + i];
          EXPECT_EQ(outputs[row * 72 + place * 8 + i], want);
        }
      }
    }
  }
}

TEST(UnevenGroupsTest, WhatCannotBeIsRefused) {
  const ModelShape shape = Wide(4, 6);
  EXPECT_THAT(PrepareOf("uneven_groups", R"({"groups": 5})")->Check(shape).error().message,
              HasSubstr("groups 5 is more than the model's 4"));
  EXPECT_THAT(
      PrepareOf("uneven_groups", R"({"groups": 2, "most": 1})")->Check(shape).error().message,
      HasSubstr("most 1 in each of 2 groups leaves some of the 4"));
  ModelShape shared = shape;
  shared.shared_caches = true;
  EXPECT_THAT(PrepareOf("uneven_groups")->Check(shared).error().message,
              HasSubstr("read the caches of others"));
}

// Heads 0 and 2 look at the first entry, 1 and 3 at their own.
TEST(ChaiTest, HeadsThatAttendAlike) {
  FakeView view(SmallShape(1, 4, 1, 2), 6);
  for (int64_t h = 0; h < 4; ++h) {
    view.keys[h].assign(12, 0.0f);
    for (int64_t entry = 0; entry < 6; ++entry) view.keys[h][2 * entry + (entry == 0 ? 0 : 1)] = 1;
  }
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t h = 0; h < 4; ++h) {
      const bool back = h % 2 == 0;
      view.first_queries.push_back(back ? 9.0f + h : 0.0f);
      view.first_queries.push_back(back ? 0.0f : 9.0f + h);
    }
  }
  const auto stage = MakeStage<Store>(StageKind::kStore, "chai", R"({"counts": "2"})");
  ASSERT_TRUE(stage->Check(view.shape()).ok());
  StorePlan plan = *stage->Plan(view.shape(), 0);
  EXPECT_EQ(plan.Get<HeadClusters>()->HeadBytes(view.shape(), 10), 10 * (2 * 2 + 4 * 2) * 4 / 4.0);
  stage->Calibrate(view, plan);
  EXPECT_THAT(plan.Get<HeadClusters>()->first, ElementsAre(0, 1, 0, 1));
  // All heads: nothing is asked for.
  EXPECT_TRUE(MakeStage<Store>(StageKind::kStore, "chai", R"({"counts": "4"})")
                  ->Plan(view.shape(), 0)
                  ->IsPlain());
}

}  // namespace
}  // namespace kvgauge
