// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

// Ten tokens: 0 is special, 3 and 7 are punctuation; of three heads the first looks at these alone,
// the second at 5 as well, the third at all alike.
class FastGenTest : public ::testing::Test {
 protected:
  static constexpr int64_t kTokens = 10;

  FastGenTest() : view_(SmallShape(1, 3), kTokens) {
    ClassOf(view_, TokenClass::kSpecial) = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    ClassOf(view_, TokenClass::kPunctuation) = {0, 0, 0, 1, 0, 0, 0, 1, 0, 0};
    for (int64_t i = 0; i < kTokens; ++i) {
      view_.At(0, i, 0) = i < 3 ? 1.0f : 0.5f;
      if (i >= 3) view_.At(0, i, 3) = 0.5f;
      view_.At(1, i, 0) = i < 5 ? 1.0f : 0.125f;
      if (i >= 5) view_.At(1, i, 5) = 0.875f;
      for (int64_t j = 0; j <= i; ++j) view_.At(2, i, j) = 1.0f / static_cast<float>(i + 1);
    }
  }

  // The entries of heads of ten each, some protected.
  std::vector<int64_t> Entries(const std::string& params, int64_t per_head,
                               const std::vector<int64_t>& also_protected = {}) {
    const auto scorer =
        MakeStage<Scorer>(StageKind::kScore, "fastgen", R"({"heavy": 0.1, "recent": 0.2})");
    std::vector<float> scores = ScoreWith(*scorer, view_);
    for (const int64_t entry : also_protected) scores[static_cast<size_t>(entry)] = kInf;
    const auto allocator = MakeStage<Allocator>(StageKind::kAllocate, "fastgen", params);
    const Tensor tensor = View(scores, {3, kTokens});
    LayerView* views[] = {&view_};
    const ModelShape shape = view_.shape();
    Result<Allocation> allocation = allocator->Allocate({.shape = &shape,
                                                         .length = kTokens,
                                                         .per_head = per_head,
                                                         .scores = {&tensor, 1},
                                                         .views = views});
    EXPECT_TRUE(allocation.ok());
    return (*allocation)[0];
  }

  FakeView view_;
};

TEST_F(FastGenTest, ScoresAreKindsAndAttention) {
  const auto scorer =
      MakeStage<Scorer>(StageKind::kScore, "fastgen", R"({"heavy": 0.1, "recent": 0.2})");
  const std::vector<float> scores = ScoreWith(*scorer, view_);
  // The heaviest of the first head, over the rows that see it, is special anyway: 6.5 of ten rows;
  // that of the second is 5, with 0.875 of each.
  EXPECT_THAT(std::vector<float>(scores.begin(), scores.begin() + 10),
              ElementsAre(4 + 0.5f * 0.65f, 0, 0, 3.25f, 0, 0, 0, 3, 1, 1));
  EXPECT_THAT(std::vector<float>(scores.begin() + 10, scores.begin() + 20),
              ElementsAre(4 + 0.5f * 0.5625f, 0, 0, 3, 0, 2.4375f, 0, 3, 1, 1));
}

TEST_F(FastGenTest, EachHeadHasTheLeastPolicyThatRecovers) {
  const std::string params = R"({"window": 2, "recovery": 0.95})";
  // Special and punctuation; these and the heaviest; all.
  EXPECT_THAT(Entries(params, 9), ElementsAre(3, 4, 10));
  // With less asked for, special tokens do for the first.
  const std::string less = R"({"window": 2, "recovery": 0.4})";
  EXPECT_THAT(Entries(less, 9), ElementsAre(1, 4, 5));
  // Protected entries are in every policy: the third head then recovers 0.42 with punctuation.
  EXPECT_THAT(Entries(less, 9, {2, 12, 22}), ElementsAre(2, 5, 4));
  // The whole budget: nothing is given up.
  EXPECT_THAT(Entries(params, 10), ElementsAre(10, 10, 10));
}

TEST_F(FastGenTest, HeadsThatAskForMoreRecoverLess) {
  const std::string params = R"({"window": 2, "recovery": 0.95})";
  // 17 entries do not go into 15: at 0.5 special tokens do for the first head.
  EXPECT_THAT(Entries(params, 5), ElementsAre(1, 4, 10));
  // Nor 15 into 12: at 0.47 the last ones do for the third.
  EXPECT_THAT(Entries(params, 4), ElementsAre(1, 4, 5));
  EXPECT_THAT(Entries(params, 1), ElementsAre(1, 1, 1));
  // More special tokens than there is room.
  ClassOf(view_, TokenClass::kSpecial).assign(kTokens, 1);
  EXPECT_THAT(Entries(params, 6), ElementsAre(6, 6, 6));
}

}  // namespace
}  // namespace kvgauge
