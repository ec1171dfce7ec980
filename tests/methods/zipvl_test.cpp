// SPDX-License-Identifier: Apache-2.0
// Which tokens of a layer attend to each other in ZipVL's prefill.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "methods/attend.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ZipVlTest : public ::testing::Test {
 protected:
  static constexpr int64_t kTokens = 6;

  ZipVlTest() {
    // Both heads pay most to token 1, and most of the rest to token 3.
    view_.queries.assign(kTokens * 2 * 4, 0.0f);
    for (int64_t i = 0; i < kTokens * 2; ++i) view_.queries[static_cast<size_t>(i * 4)] = 1;
    view_.keys[0][1 * 4] = 20;
    view_.keys[0][3 * 4] = 16;
  }
  PromptSight Choose(const std::string& params) {
    const auto stage = MakeStage<Attend>(StageKind::kAttend, "zipvl", params);
    return stage->Choose(view_, View(view_.queries, {kTokens, 2, 4}));
  }

  FakeView view_{SmallShape(1, 1, 2), kTokens};
};

// The two last rows pay token 1 e^10 parts, token 3 e^8 and the others 1: 0.88, 0.12 and less.
TEST_F(ZipVlTest, AsManyAttendAsHoldTheShare) {
  EXPECT_THAT(Choose(R"({"threshold": 0.8, "recent": 2, "drawn": 0, "last": 0})").among,
              ElementsAre(1));
  EXPECT_THAT(Choose(R"({"threshold": 0.9, "recent": 2, "drawn": 0, "last": 0})").among,
              ElementsAre(1, 3));
  // The last row takes the place of the least.
  EXPECT_THAT(Choose(R"({"threshold": 0.9, "recent": 2, "drawn": 0})").among, ElementsAre(1, 5));
  EXPECT_THAT(Choose(R"({"threshold": 0.8, "recent": 2, "drawn": 0, "last": 3})").among,
              ElementsAre(3, 4, 5));
}

// Tokens 0 and 1 have most of all rows, 2.3 and 1.3 of 6; but the last is paid 1 by the only row
// that could see it.
TEST_F(ZipVlTest, SumsSayHowManyAndMeansWhich) {
  view_.keys[0][1 * 4] = 0;
  view_.keys[0][3 * 4] = 0;
  view_.keys[0][5 * 4] = 20;
  EXPECT_THAT(Choose(R"({"threshold": 0.5, "recent": 6, "drawn": 0, "last": 0})").among,
              ElementsAre(0, 5));
}

TEST_F(ZipVlTest, AllMayAttend) {
  EXPECT_THAT(Choose(R"({"threshold": 1})").among, IsEmpty());
  const PromptSight sight = Choose(R"({"threshold": 0.9, "last": 6})");
  EXPECT_THAT(sight.among, IsEmpty());
  ASSERT_EQ(sight.heads.size(), 2u);
  EXPECT_EQ(sight.heads[0].kind, HeadSight::Kind::kWhole);
}

}  // namespace
}  // namespace kvgauge
