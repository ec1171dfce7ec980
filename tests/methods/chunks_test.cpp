// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "chosen_entries.h"
#include "fake_view.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

TEST(ChunksTest, WholeRunsByTheirMean) {
  FakeView view(SmallShape(), 8);
  // Means 2, 3, 1 and, of the run cut short, 4.
  const std::vector<float> scores = {4, 1, 1, 0, 9, 0, 4, 4};
  const auto kept = [&](int64_t allocated) {
    return Kept("chunks", R"({"size": 3})", view, scores, {allocated})[0];
  };
  EXPECT_THAT(kept(2), ElementsAre(6, 7));
  EXPECT_THAT(kept(5), ElementsAre(3, 4, 5, 6, 7));
  EXPECT_THAT(kept(6), ElementsAre(0, 3, 4, 5, 6, 7));  // the first of the next
  EXPECT_THAT(kept(1), ElementsAre(6));
  EXPECT_EQ(kept(8).size(), 8u);
  // Protected entries come first and count in no mean: 0 1 2 has a mean of 1 without the sink.
  const std::vector<float> forced = {kInf, 1, 1, 0, 9, 0, kInf, kInf};
  EXPECT_THAT(Kept("chunks", R"({"size": 3})", view, forced, {3})[0], ElementsAre(0, 6, 7));
  EXPECT_THAT(Kept("chunks", R"({"size": 3})", view, forced, {6})[0],
              ElementsAre(0, 3, 4, 5, 6, 7));
}

TEST(ChunksTest, HeadsChooseTogetherForThePrompt) {
  FakeView view(SmallShape(1, 2), 4);
  // Apart the first run is better for one head, the second for the other; summed the second.
  const std::vector<float> scores = {3, 3, 2, 2, 0, 0, 4, 4};
  EXPECT_THAT(Kept("chunks", R"({"size": 2})", view, scores, {2, 2}),
              ElementsAre(ElementsAre(2, 3), ElementsAre(2, 3)));
  for (const auto& [params, step] :
       {std::pair(R"({"size": 2, "heads": "own"})", 0), std::pair(R"({"size": 2})", 4)}) {
    EXPECT_THAT(Kept("chunks", params, view, scores, {2, 3}, step),
                ElementsAre(ElementsAre(0, 1), ElementsAre(0, 2, 3)));
  }
}

}  // namespace
}  // namespace kvgauge
