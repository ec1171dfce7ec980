// SPDX-License-Identifier: Apache-2.0
#include "runner/layer_division.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

LayerCosts Alike(int64_t layers, int64_t bytes) {
  LayerCosts costs;
  costs.weight_bytes.assign(static_cast<size_t>(layers), bytes);
  costs.caches.assign(static_cast<size_t>(layers), true);
  return costs;
}

std::vector<int64_t> EndsOf(const LayerCosts& costs, const std::vector<int64_t>& free_bytes) {
  const Result<std::vector<LayerShare>> shares = DivideLayers(costs, free_bytes);
  EXPECT_TRUE(shares.ok()) << shares.error().message;
  std::vector<int64_t> ends;
  int64_t first = 0, bytes = 0;
  for (const LayerShare& share : *shares) {
    EXPECT_EQ(share.first, first);
    EXPECT_GT(share.end, share.first);
    first = share.end;
    bytes += share.weight_bytes;
    ends.push_back(share.end);
  }
  EXPECT_EQ(bytes, std::accumulate(costs.weight_bytes.begin(), costs.weight_bytes.end(),
                                   costs.first_bytes + costs.last_bytes));
  return ends;
}

TEST(LayerDivision, EqualDevicesHaveEqualLayers) {
  EXPECT_EQ(EndsOf(Alike(8, 10), {1000, 1000}), (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(EndsOf(Alike(6, 10), {1000, 1000, 1000}), (std::vector<int64_t>{2, 4, 6}));
}

TEST(LayerDivision, TheEndsOfAModelCountWhereTheyLie) {
  LayerCosts costs = Alike(8, 10);
  costs.first_bytes = 400;
  EXPECT_LT(EndsOf(costs, {1000, 1000})[0], 4);
  costs.last_bytes = 700;
  EXPECT_GT(EndsOf(costs, {1000, 1000})[0], 4);
}

// It is loaded beside the first layer when there is a picture to see.
TEST(LayerDivision, TheTowerCountsWhereTheFirstLayerLies) {
  LayerCosts costs = Alike(8, 10);
  costs.tower_bytes = 400;
  EXPECT_EQ(EndsOf(costs, {1000, 1000}), (std::vector<int64_t>{3, 8}));
  const auto shares = *DivideLayers(costs, std::vector<int64_t>{1000, 1000});
  EXPECT_EQ(shares[0].tower_bytes, 400);
  EXPECT_EQ(shares[0].left_bytes(), 1000 - 3 * 10 - 400);
  EXPECT_EQ(shares[1].tower_bytes, 0);
  EXPECT_EQ(Describe(shares[0]),
            "layers 0 to 2, 30 B of weights, 400 B for the vision tower, 570 B free for caches "
            "and work");
  // Texts need no tower.
  costs.tower_bytes = 2000;
  EXPECT_EQ(EndsOf(costs, {1000, 1000}), (std::vector<int64_t>{4, 8}));
  EXPECT_EQ((*DivideLayers(costs, std::vector<int64_t>{1000, 1000}))[0].tower_bytes, 0);
}

// What is free changes between a plan and the load, for which the plan was made.
TEST(LayerDivision, ADecidedDivisionIsFollowedWhileItFits) {
  LayerCosts costs = Alike(8, 10);
  costs.tower_bytes = 400;
  const std::vector<LayerShare> decided = *DivideLayers(costs, std::vector<int64_t>{1000, 1000});
  const std::vector<int64_t> later = {440, 5000};
  const auto other = *DivideLayers(costs, later);
  EXPECT_FALSE(SameLayers(decided, other));
  const auto kept = Follow(decided, costs, later);
  ASSERT_TRUE(kept.has_value());
  EXPECT_TRUE(SameLayers(*kept, decided));
  EXPECT_EQ((*kept)[0].left_bytes(), 440 - 3 * 10 - 400);
  EXPECT_EQ((*kept)[1].free_bytes, 5000);
  EXPECT_FALSE(Follow(decided, costs, std::vector<int64_t>{420, 5000}).has_value());
  EXPECT_FALSE(Follow(decided, costs, std::vector<int64_t>{1000, 1000, 1000}).has_value());
  EXPECT_FALSE(Follow(decided, Alike(9, 10), later).has_value());
  EXPECT_FALSE(Follow({}, costs, later).has_value());
  // A tower that was left out stays so.
  costs.tower_bytes = 2000;
  const auto blind = *DivideLayers(costs, std::vector<int64_t>{1000, 1000});
  EXPECT_EQ((*Follow(blind, costs, later))[0].tower_bytes, 0);
}

TEST(LayerDivision, ASmallDeviceHasFewLayers) {
  // Seven layers have room of 275 each there, six would leave the other two 240 each.
  EXPECT_EQ(EndsOf(Alike(8, 10), {2000, 500}), (std::vector<int64_t>{7, 8}));
}

// Layers without a cache leave all the room that their weights do not take.
TEST(LayerDivision, RoomIsThatOfCaches) {
  LayerCosts costs = Alike(8, 10);
  for (const size_t layer : {0, 1, 2, 3, 4}) costs.caches[layer] = false;
  EXPECT_EQ(EndsOf(costs, {1000, 1000})[0], 6);
}

// No other division leaves the layer with the least room more of it.
TEST(LayerDivision, NoOtherIsBetter) {
  LayerCosts costs = Alike(7, 0);
  costs.weight_bytes = {30, 10, 25, 10, 40, 5, 20};
  costs.first_bytes = 15;
  costs.last_bytes = 50;
  const std::vector<int64_t> free_bytes = {300, 200, 260};
  const auto least = [&](int64_t a, int64_t b) {
    const int64_t bounds[] = {0, a, b, 7};
    int64_t room = INT64_MAX;
    for (size_t d = 0; d < 3; ++d) {
      int64_t left = free_bytes[d] - (d == 0 ? 15 : 0) - (d == 2 ? 50 : 0);
      for (int64_t i = bounds[d]; i < bounds[d + 1]; ++i) {
        left -= costs.weight_bytes[static_cast<size_t>(i)];
      }
      room = std::min(room, left / (bounds[d + 1] - bounds[d]));
    }
    return room;
  };
  int64_t best = INT64_MIN;
  for (int64_t a = 1; a < 6; ++a) {
    for (int64_t b = a + 1; b < 7; ++b) best = std::max(best, least(a, b));
  }
  const std::vector<int64_t> ends = EndsOf(costs, free_bytes);
  EXPECT_EQ(least(ends[0], ends[1]), best);
}

TEST(LayerDivision, WhatFitsNowhereIsRefusedWithNumbers) {
  const Result<std::vector<LayerShare>> shares =
      DivideLayers(Alike(4, int64_t{1} << 20), std::vector<int64_t>{3 << 20, 1 << 10});
  ASSERT_FALSE(shares.ok());
  EXPECT_EQ(shares.error().code, ErrorCode::kResource);
  EXPECT_THAT(shares.error().message, HasSubstr("1.0 MiB of weights where 1.0 KiB are free"));
  EXPECT_THAT(DivideLayers(Alike(2, 1), std::vector<int64_t>{9, 9, 9}).error().message,
              HasSubstr("3 devices for a model of 2 layers"));
}

}  // namespace
}  // namespace kvgauge
