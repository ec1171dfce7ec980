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

// One sink, runs 1-3, 4-6 and 7-9, and entry 10.
TEST(PartitionsTest, RunsKeepEqualShares) {
  FakeView view(SmallShape(), 11);
  const std::string params = R"({"sinks": 1, "size": 3})";
  const std::vector<float> scores = {0, 0.9f, 0.8f, 0.7f, 0.1f, 0.3f, 0.2f, 0, 0, 0, 0};
  const auto kept = [&](int64_t allocated) {
    return Kept("partitions", params, view, scores, {allocated})[0];
  };
  // Five are outside of the two open runs.
  EXPECT_THAT(kept(7), ElementsAre(0, 1, 5, 7, 8, 9, 10));
  EXPECT_THAT(kept(9), ElementsAre(0, 1, 2, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(kept(8), ElementsAre(0, 1, 2, 5, 7, 8, 9, 10));  // one over: the best that is left
  EXPECT_EQ(kept(11).size(), 11u);
  // Too little for the newest: by score.
  EXPECT_THAT(kept(3), ElementsAre(1, 2, 3));
  // Protected entries stay whatever runs are due.
  const std::vector<float> forced = {kInf, 0.9f, 0.8f, 0.7f, kInf, kInf, 0.2f, 0, 0, 0, 0};
  EXPECT_THAT(Kept("partitions", params, view, forced, {7})[0], ElementsAre(0, 1, 4, 5, 7, 8, 9));
  // A prompt without two runs.
  EXPECT_THAT(Kept("partitions", R"({"sinks": 1, "size": 6})", view, scores, {3})[0],
              ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace kvgauge
