// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "methods/fake_view.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Allocator> PerLayerWith(const std::string& shares) {
  return MakeStage<Allocator>(StageKind::kAllocate, "per_layer", Json{{"shares", shares}}.dump());
}

// Entries of each layer's heads, 10 a head on average of 30.
std::vector<int64_t> LayersUnder(const std::string& shares, int64_t layers) {
  const ModelShape shape = SmallShape(layers);
  const Result<Allocation> allocation =
      PerLayerWith(shares)->Allocate({.shape = &shape, .length = 30, .per_head = 10});
  std::vector<int64_t> entries;
  for (const auto& layer : *allocation) entries.push_back(layer[0]);
  return entries;
}

TEST(PerLayerTest, SharesDivideTheBudgetAndStandForDepths) {
  EXPECT_THAT(LayersUnder("3, 1", 2), ElementsAre(15, 5));
  EXPECT_THAT(LayersUnder("3,1", 3), ElementsAre(15, 10, 5));
  EXPECT_THAT(LayersUnder("7", 2), ElementsAre(10, 10));
  EXPECT_THAT(LayersUnder("1,0", 2), ElementsAre(20, 0));
}

TEST(PerLayerTest, SharesThatAreNoneAreRefused) {
  const ModelShape shape = SmallShape(2);
  for (const char* shares : {"", "1,,2", "1,x", "-1,2", "inf", "0,0", "1,2,3"}) {
    const Status status = PerLayerWith(shares)->Check(shape);
    ASSERT_FALSE(status.ok()) << shares;
    EXPECT_THAT(status.error().message, HasSubstr("shares")) << shares;
  }
  EXPECT_TRUE(PerLayerWith("1,2")->Check(shape).ok());
}

}  // namespace
}  // namespace kvgauge
