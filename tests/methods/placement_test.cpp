// SPDX-License-Identifier: Apache-2.0
#include "methods/placement.h"

#include <gmock/gmock.h>

#include "core/json.h"
#include "methods/fake_view.h"
#include "methods/method.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;

const std::string kMethods = std::string(KVG_SOURCE_DIR) + "/configs/methods";

std::pair<int64_t, int64_t> OnHost(const Placement& place, int64_t layer, int64_t length) {
  const EntryRange range = place.OnHost(layer, length);
  return {range.first, range.last};
}

TEST(Placement, TheOldestBetweenTheFirstAndTheLastAreThere) {
  const Placement place = {.share = 0.75, .sinks = 4, .recent = 10, .first_layer = 1};
  EXPECT_THAT(OnHost(place, 1, 100), Pair(4, 4 + 64));  // 64.5 of 86
  EXPECT_THAT(OnHost(place, 0, 100), Pair(4, 4));
  EXPECT_THAT(OnHost(place, 1, 14), Pair(4, 4));
  EXPECT_THAT(OnHost(place, 1, 3), Pair(3, 3));
  EXPECT_THAT(OnHost({}, 1, 100), Pair(0, 0));
  // A share whose product is a whole number but for rounding: 0.29 * 100 is 28.999...
  EXPECT_THAT(OnHost({.share = 0.29}, 0, 100), Pair(0, 29));
}

TEST(Placement, IsPartOfTheMethod) {
  const Method plain = *LoadMethod("quest", kMethods, {});
  EXPECT_FALSE(plain.place.any());
  EXPECT_FALSE(plain.ToJson().contains("place"));
  const Result<Method> placed =
      LoadMethod("quest", kMethods, {"place.sides=values", "place.recent=64", "place.index=host"});
  ASSERT_TRUE(placed.ok()) << placed.error().message;
  EXPECT_EQ(placed->place.share, 1);
  EXPECT_FALSE(placed->place.keys);
  EXPECT_EQ(placed->ToJson().at("place").at("sides"), "values");
  EXPECT_EQ(placed->place.Describe(), "all values but 64 last; the index as well");
  // Without a share it is no other method.
  EXPECT_EQ(LoadMethod("quest", kMethods, {"place.share=0"})->ToJson(), plain.ToJson());
}

TEST(Placement, WhatHasNoEffectIsRefused) {
  const ModelShape shape = SmallShape(1, 2, 1, 32);
  const auto refused = [&](const char* id, const char* text) {
    const Result<Method> method = LoadMethod(id, kMethods, {text});
    EXPECT_TRUE(method.ok());
    const Status status = CheckMethod(*method, shape, {}, 100);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_THAT(refused("flexgen_offload", "place.first_layer=1"),
              HasSubstr("place.first_layer is 1, but the model has 1 layers"));
  EXPECT_THAT(refused("flexgen_offload", "place.index=host"), HasSubstr("no read stage"));
  EXPECT_EQ(refused("flexgen_offload", "place.sides=keys"), "");
}

}  // namespace
}  // namespace kvgauge
