// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "methods/attend.h"
#include "methods/calibration.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<bool> StreamsOf(const Attend& stage, FakeView& view) {
  const ModelShape& shape = view.shape();
  view.queries.resize(static_cast<size_t>(view.width() * shape.query_heads * shape.key_dim));
  const PromptSight sight =
      stage.Choose(view, View(view.queries, {view.width(), shape.query_heads, shape.key_dim}));
  std::vector<bool> streams;
  for (const HeadSight& head : sight.heads) {
    streams.push_back(head.kind != HeadSight::Kind::kWhole);
    if (head.kind != HeadSight::Kind::kBand) continue;
    EXPECT_EQ(head.sinks, 3);
    EXPECT_EQ(head.window, 20);
  }
  return streams;
}

std::unique_ptr<Attend> StreamingStage(std::string_view more) {
  return MakeStage<Attend>(StageKind::kAttend, "streaming_heads",
                           StrCat(R"({"sinks": 3, "window": 20)", more, "}"));
}

TEST(StreamingHeadsTest, GatesTellHeadsOfAllLayersApart) {
  auto table = std::make_shared<Calibration>();
  table->tables["heads"] = {{2, 2}, {0.1f, 0.9f, 0.3f, 0.1f}};
  FakeView lower(SmallShape(2, 2, 2), 40, 0), upper(SmallShape(2, 2, 2), 40, 1);
  const auto half = StreamingStage(R"(, "calibration": "t")");
  half->Use(table);
  EXPECT_TRUE(half->Check(lower.shape()).ok());
  EXPECT_THAT(half->Check(SmallShape(2, 4)).error().message, HasSubstr("[2, 4]"));
  EXPECT_THAT(StreamsOf(*half, lower), ElementsAre(true, true, false, false));
  EXPECT_THAT(StreamsOf(*half, upper), ElementsAre(false, false, true, true));
  // A third of three gaps: one head is below, and of equal ones the earlier.
  const auto third = StreamingStage(R"(, "share": 0.3333, "calibration": "t")");
  third->Use(table);
  EXPECT_THAT(StreamsOf(*third, lower), ElementsAre(true, true, false, false));
  EXPECT_THAT(StreamsOf(*third, upper), ElementsAre(false, false, false, false));
  for (const bool all : {false, true}) {
    const auto stage = StreamingStage(StrCat(R"(, "calibration": "t", "share": )", all ? 1 : 0));
    stage->Use(table);
    EXPECT_THAT(StreamsOf(*stage, lower), ElementsAre(all, all, all, all));
  }
}

TEST(StreamingHeadsTest, APromptTellsHeadsOfALayerApart) {
  FakeView view(SmallShape(1, 2, 2), 60);
  view.queries.assign(60 * 4 * 4, 1.0f);
  // All look at the fifth entry by their first KV head, and at the newest ones by the second.
  view.keys[0][5 * 4] = 60;
  for (size_t i = 45; i < 60; ++i) view.keys[1][i * 4] = 20;
  const auto stage = StreamingStage(R"(, "rows": 8)");
  EXPECT_THAT(StreamsOf(*stage, view), ElementsAre(false, false, true, true));
  FakeView within(SmallShape(1, 2, 2), 23);
  EXPECT_THAT(StreamsOf(*stage, within), ElementsAre(false, false, false, false));
}

TEST(StreamingHeadsTest, BlocksHoldWhatABandHolds) {
  FakeView view(SmallShape(1, 1, 1), 520);
  const auto stage = StreamingStage(R"(, "share": 1, "blocks": true)");
  view.queries.resize(520 * 4);
  const PromptSight sight = stage->Choose(view, View(view.queries, {520, 1, 4}));
  EXPECT_EQ(sight.block, 128);
  EXPECT_EQ(sight.heads[0].kind, HeadSight::Kind::kBlocks);
  EXPECT_THAT(sight.heads[0].blocks, ElementsAre(1u, 3u, 5u, 9u, 17u));
}

}  // namespace
}  // namespace kvgauge
