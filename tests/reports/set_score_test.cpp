// SPDX-License-Identifier: Apache-2.0
#include "reports/set_score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kvgauge {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double Ratio(const std::vector<double>& sums) { return sums[0] / sums[1]; }
double Perplexity(const std::vector<double>& sums) { return std::exp(sums[0] / sums[1]); }

double MeanOf(const std::vector<double>& values) {
  double sum = 0, count = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return sum / count;
}

TEST(SetScore, OfAMeanTheValuesAreTheSamples) {
  const std::vector<double> values = SetValues({3, 1, 5, 1, -2, 1}, 2, Ratio);
  ASSERT_EQ(values.size(), 3u);
  EXPECT_NEAR(values[0], 3, 1e-12);
  EXPECT_NEAR(values[1], 5, 1e-12);
  EXPECT_NEAR(values[2], -2, 1e-12);
}

TEST(SetScore, TheMeanIsTheScoreOfTheSet) {
  // Nats and tokens of three windows, one far shorter: no mean of perplexities.
  const std::vector<double> parts = {200, 100, 30, 10, 600, 200};
  const std::vector<double> values = SetValues(parts, 2, Perplexity);
  EXPECT_NEAR(MeanOf(values), std::exp(830.0 / 310), 1e-9);
  EXPECT_GT(std::abs(MeanOf(values) - (std::exp(2.0) + std::exp(3.0) + std::exp(3.0)) / 3), 0.5);
  // What is worse than the rest pulls up, and the more so the more it weighs.
  EXPECT_LT(values[0], values[1]);
  EXPECT_LT(values[1], values[2]);
}

TEST(SetScore, OfAPartOfTheSet) {
  const std::vector<double> parts = {200, 100, kNone, kNone, 30, 10, 600, 200};
  const std::vector<double> all = SetValues(parts, 2, Perplexity);
  EXPECT_TRUE(std::isnan(all[1]));
  EXPECT_NEAR(MeanOf(all), std::exp(830.0 / 310), 1e-9);
  const std::vector<double> some = SetValues(parts, 2, Perplexity, {true, true, true, false});
  EXPECT_TRUE(std::isnan(some[1]) && std::isnan(some[3]));
  EXPECT_NEAR(MeanOf(some), std::exp(230.0 / 110), 1e-9);
  const std::vector<double> one = SetValues(parts, 2, Perplexity, {false, false, true, false});
  EXPECT_NEAR(one[2], std::exp(3.0), 1e-12);
  EXPECT_TRUE(std::isnan(SetValues({kNone, kNone}, 2, Perplexity)[0]));
}

}  // namespace
}  // namespace kvgauge
