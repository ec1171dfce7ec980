// SPDX-License-Identifier: Apache-2.0
#include "methods/score_reduction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/strings.h"
#include "fake_view.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

TEST(ScoreReductionTest, OrderMattersForMaxPoolingOnly) {
  FakeView view(SmallShape(1, 1, 2), 3);
  const std::vector<float> rows = {1, 0, 0, 0, 0, 3};
  const auto reduce = [&](ScoreReduction::Group group, Pooling pooling, bool pool_first) {
    std::vector<float> out(3);
    ScoreReduction reduction{
        .group = group, .kernel = 3, .pooling = pooling, .pool_first = pool_first};
    reduction.Apply(view, View(rows, {2, 3}), View(out, {1, 3}));
    return out;
  };
  using Group = ScoreReduction::Group;
  EXPECT_THAT(reduce(Group::kMean, Pooling::kMax, false), ElementsAre(0.5f, 1.5f, 1.5f));
  EXPECT_THAT(reduce(Group::kMean, Pooling::kMax, true), ElementsAre(0.5f, 2.0f, 1.5f));
  EXPECT_EQ(reduce(Group::kSum, Pooling::kAverage, false),
            reduce(Group::kSum, Pooling::kAverage, true));
  EXPECT_THAT(reduce(Group::kMax, Pooling::kMax, true), ElementsAre(1, 3, 3));
}

}  // namespace
}  // namespace kvgauge
