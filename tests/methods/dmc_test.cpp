// SPDX-License-Identifier: Apache-2.0
// The stage of Dynamic Memory Compression: what it tells the runner, and which models and stages it
// refuses. What the runner makes of it is in tests/runner/entry_means_test.cpp and in the goldens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "fake_weights.h"
#include "methods/method.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

ModelShape DmcShape() {
  ModelShape shape = SmallShape(2, 2, 2, 4);
  shape.windows = {0, 0};
  return shape;
}

TEST(DmcTest, TellsTheRunnerHowRowsJoin) {
  const ModelShape shape = DmcShape();
  FakeWeights weights(shape, false);
  const auto stage = PrepareOf("dmc", R"({"offset": 4, "window": 3})");
  ASSERT_TRUE(stage->Check(shape).ok());
  ASSERT_TRUE(stage->Transform(weights).ok());
  ASSERT_TRUE(weights.means.has_value());
  EXPECT_TRUE(weights.means->merges);
  EXPECT_EQ(weights.means->offset, 4.0f);
  EXPECT_EQ(weights.means->window, 3);
  EXPECT_TRUE(weights.written.empty()) << "the checkpoint's weights are what was trained";
  const ModelShape after = stage->ShapeAfter(shape);
  EXPECT_TRUE(after.running_entries);
  // Two layers of two heads: two rows of key, value and weight, and a count, in f32.
  EXPECT_EQ(after.state_bytes, 2 * 2 * (2 * (4 + 4 + 1) + 1) * 4);
}

TEST(DmcTest, DefaultsAreThoseOfTheCode) {
  FakeWeights weights(DmcShape(), false);
  ASSERT_TRUE(PrepareOf("dmc", "{}")->Transform(weights).ok());
  EXPECT_EQ(weights.means->offset, 5.0f);
  EXPECT_EQ(weights.means->window, 12);
}

TEST(DmcTest, RefusesOtherModels) {
  const auto refused = [](const ModelShape& shape) {
    const Status status = PrepareOf("dmc", "{}")->Check(shape);
    return status.ok() ? std::string() : status.error().message;
  };
  ModelShape shape = DmcShape();
  EXPECT_EQ(refused(shape), "");
  shape.windows[1] = 16;
  EXPECT_THAT(refused(shape), HasSubstr("layer 1 sees a window of 16"));
  shape = DmcShape();
  shape.latent_dim = 8;
  EXPECT_THAT(refused(shape), HasSubstr("latents"));
  shape = DmcShape();
  shape.shared_caches = true;
  EXPECT_THAT(refused(shape), HasSubstr("caches of others"));
  shape = DmcShape();
  shape.state_bytes = 4;
  EXPECT_THAT(refused(shape), HasSubstr("constant size"));
  shape = DmcShape();
  shape.distances = true;
  EXPECT_THAT(refused(shape), HasSubstr("ALiBi"));
}

TEST(DmcTest, RefusesStagesThatActOnEntries) {
  const auto checked = [](const std::string& with) {
    const Result<Json> json = ParseJson(
        R"({"id": "both", "title": "t", "family": "merging", "version": 1,)" + with, "test");
    EXPECT_TRUE(json.ok());
    const Result<Method> method = ParseMethod(*json, "test");
    if (!method.ok()) return method.error().message;
    const Budget budget = method->takes_budget ? Budget{Budget::Kind::kFraction, 0.5} : Budget{};
    const Status status = CheckMethod(*method, DmcShape(), budget, 100);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(checked(R"("stages": {"prepare": {"id": "dmc"}}})"), "");
  EXPECT_THAT(checked(R"("stages": {"prepare": {"id": "dmc"}, "score": {"id": "knorm"},
                         "reduce": {"id": "top_k"}}})"),
              HasSubstr("acts on entries"));
  EXPECT_THAT(checked(R"("stages": {"prepare": {"id": "dmc"}, "store": {"id": "kivi"}}})"),
              HasSubstr("store.kivi: stores entries otherwise"));
  EXPECT_THAT(checked(R"("stages": {"prepare": {"id": "dmc"}, "read": {"id": "quest"}}})"),
              HasSubstr("read.quest: acts on entries"));
  EXPECT_THAT(checked(R"("place": {"recent": 16}, "stages": {"prepare": {"id": "dmc"}}})"),
              HasSubstr("place"));
}

}  // namespace
}  // namespace kvgauge
