// SPDX-License-Identifier: Apache-2.0
// Scores that remember when attention came back to an entry.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fake_view.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

// The times count from 1: entry 0 is made by the row of time 1.
TEST(RaasTest, TheLastRowThatPaysEnoughSetsTheTime) {
  FakeView view(SmallShape(1, 1, 2), 5);
  view.At(0, 3, 0) = 0.2f;  // time 4
  view.At(1, 4, 1) = 0.3f;  // time 5, of the other query head
  view.At(0, 2, 2) = 0.4f;  // outside of the rows that are looked at
  const auto scorer =
      MakeStage<Scorer>(StageKind::kScore, "raas", R"({"window": 2, "least": 0.1})");
  std::vector<float> scores = ScoreWith(*scorer, view);
  // The rows of the window made entries 3 and 4.
  EXPECT_THAT(scores, ElementsAre(4, 5, 0, 4, 5));
  view.step = {0.5f, 0, 0, 0, 0, 0, 0, 0.05f, 0.2f, 0};
  view.is_decoding = true;
  scores[4] = 0;  // new
  scorer->Age(view, View(scores, {1, 5}));
  EXPECT_THAT(scores, ElementsAre(5, 5, 0, 5, 5));
}

// By the largest sum of a query head over the prompt's last rows, thereafter by the largest number
// of each row; divided by how many of these rows there were.
TEST(DiffKvTest, TheMeanIsOfTheRowsThatCount) {
  FakeView view(SmallShape(1, 1, 2), 4);
  view.At(0, 1, 0) = 0.9f;  // before the rows that count
  view.At(0, 2, 0) = 0.5f;
  view.At(1, 2, 0) = 0.1f;
  view.At(0, 3, 0) = 0.25f;
  view.At(1, 3, 0) = 0.45f;
  view.At(1, 3, 3) = 0.5f;
  const auto scorer = MakeStage<Scorer>(StageKind::kScore, "diffkv", R"({"window": 2})");
  EXPECT_THAT(ScoreWith(*scorer, view), ElementsAre(0.375f, 0, 0, 0.5f));
  std::vector<float> numbers(8);
  scorer->Start(view, View(numbers, {2, 1, 4}));
  EXPECT_THAT(numbers, ElementsAre(0.75f, 0, 0, 0.5f, 2, 2, 2, 1));
  view.step = {0.25f, 0, 0, 0.5f, 0.5f, 0.125f, 0, 0};
  view.is_decoding = true;
  numbers[3] = numbers[7] = 0;  // new
  scorer->Age(view, View(numbers, {2, 1, 4}));
  EXPECT_THAT(numbers, ElementsAre(1.25f, 0.125f, 0, 0.5f, 3, 3, 3, 1));
}

class LazyEvictionTest : public ::testing::Test {
 protected:
  static constexpr int64_t kEntries = 4;

  // One step of `time`, whose row hits the entries that `hits` says.
  void Step(const std::vector<float>& hits) {
    view_.step = hits;
    scorer_->Age(view_, View(numbers_, {2, 1, kEntries}));
  }
  std::vector<float> Rank() {
    std::vector<float> scores(kEntries);
    scorer_->Rank(view_, View(numbers_, {2, 1, kEntries}), View(scores, {1, kEntries}));
    return scores;
  }

  FakeView view_{SmallShape(), kEntries};
  const std::unique_ptr<Scorer> scorer_ =
      MakeStage<Scorer>(StageKind::kScore, "lazyeviction", R"({"window": 1, "least": 0.1})");
  std::vector<float> numbers_ = std::vector<float>(2 * kEntries);
};

TEST_F(LazyEvictionTest, PeriodsGrowWithTheTimeBetweenHits) {
  EXPECT_EQ(scorer_->numbers(), 2);
  // The newest prompt row, of time 4, hits entry 0, which was made at time 1.
  view_.At(0, 3, 0) = 0.5f;
  scorer_->Start(view_, View(numbers_, {2, 1, kEntries}));
  EXPECT_THAT(numbers_, ElementsAre(4, 2, 3, 4, 3, 0, 0, 0));
  // A step of the same time: the newest entry's own number begins.
  view_.is_decoding = true;
  Step({0, 0.2f, 0, 0});
  EXPECT_THAT(numbers_, ElementsAre(4, 4, 3, 4, 3, 2, 0, 0));
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::vector<float> scores = Rank();
  EXPECT_NEAR(scores[0], 2 * sigmoid(0) + 2 * sigmoid(-1.0 / 3), 1e-6);
  EXPECT_NEAR(scores[1], 2 * sigmoid(0) + 2 * sigmoid(-1.0 / 2), 1e-6);
  EXPECT_EQ(scores[2], 0);  // no second hit
  EXPECT_EQ(scores[3], 0);
}

// The authors' code: the prompt was hit at its end, and a new entry one step ago.
TEST_F(LazyEvictionTest, TheReleasedFormCountsStepsAloneAndFavoursShortPeriods) {
  const auto released =
      MakeStage<Scorer>(StageKind::kScore, "lazyeviction", R"({"form": "released", "least": 0.1})");
  EXPECT_EQ(released->needs().window, 0);
  released->Start(view_, View(numbers_, {2, 1, kEntries}));
  EXPECT_THAT(numbers_, ElementsAre(4, 4, 4, 4, 0, 0, 0, 0));
  view_.is_decoding = true;
  view_.step = {0.5f, 0, 0, 0.5f};
  numbers_ = {1, 2, 4, 0, 2, 0, 0, 0};
  released->Age(view_, View(numbers_, {2, 1, kEntries}));
  EXPECT_THAT(numbers_, ElementsAre(4, 2, 4, 4, 3, 0, 0, 1));
  std::vector<float> scores(kEntries);
  numbers_ = {3, 4, 2, 1, 3, 1, 0, 1};
  released->Rank(view_, View(numbers_, {2, 1, kEntries}), View(scores, {1, kEntries}));
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_NEAR(scores[0], 2 * sigmoid(-1 - 1.0 / 3) + 2 * sigmoid(1 - 3), 1e-5);
  EXPECT_NEAR(scores[1], 2 * sigmoid(-1) + 2 * sigmoid(0), 1e-5);
  EXPECT_EQ(scores[2], 0);  // no period
  EXPECT_NEAR(scores[3], 2 * sigmoid(-1 - 3) + 2 * sigmoid(0), 1e-4);
}

// Attention comes back to entry 0 every 50 steps, and came to entry 1 twice, long ago.
TEST_F(LazyEvictionTest, WhatIsDueStaysAndWhatIsOverdueGoes) {
  numbers_ = {3, 3, 4, 4, 50, 2, 0, 0};
  std::vector<float> scores = Rank();
  EXPECT_GT(scores[0], scores[1]);
  EXPECT_GT(scores[1], scores[2]);
  // Far beyond what exp can hold.
  numbers_ = {-1e6f, 3, 4, 4, 50, 2, 0, 0};
  scores = Rank();
  EXPECT_TRUE(std::isfinite(scores[0]));
}

}  // namespace
}  // namespace kvgauge
