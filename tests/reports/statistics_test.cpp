// SPDX-License-Identifier: Apache-2.0
#include "reports/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/rng.h"
#include "src/distributions.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> Singles(size_t count) {
  std::vector<int64_t> clusters(count);
  std::iota(clusters.begin(), clusters.end(), int64_t{0});
  return clusters;
}

TEST(Distributions, KnownPoints) {
  EXPECT_NEAR(NormalQuantile(0.975), 1.959963984540054, 1e-14);
  EXPECT_NEAR(NormalQuantile(0.025), -1.959963984540054, 1e-14);
  EXPECT_NEAR(NormalQuantile(0.5), 0.0, 1e-15);
  // One degree is Cauchy, two and four have closed forms.
  EXPECT_NEAR(StudentCdf(1, 1), 0.75, 1e-14);
  EXPECT_NEAR(StudentQuantile(0.975, 1), std::tan(0.475 * M_PI), 1e-10);
  for (const double t : {-4.0, -0.3, 0.7, 2.5, 30.0}) {
    EXPECT_NEAR(StudentCdf(t, 2), 0.5 + t / (2 * std::sqrt(2 + t * t)), 1e-13) << t;
    const double u = t / std::sqrt(4 + t * t);
    EXPECT_NEAR(StudentCdf(t, 4), 0.5 + u / 2 * (1 + (1 - u * u) / 2), 1e-13) << t;
  }
  EXPECT_NEAR(StudentCdf(StudentQuantile(0.975, 3.7), 3.7), 0.975, 1e-14);
  EXPECT_NEAR(StudentCdf(1.96, 1e7), NormalCdf(1.96), 1e-7);
}

TEST(Statistics, McNemarByHand) {
  EXPECT_EQ(McNemarExact(0, 0), 1.0);
  EXPECT_NEAR(McNemarExact(0, 8), 2.0 / 256, 1e-15);
  EXPECT_NEAR(McNemarExact(2, 10), 2 * (1 + 12 + 66) / 4096.0, 1e-14);
  EXPECT_NEAR(McNemarExact(10, 2), 2 * (1 + 12 + 66) / 4096.0, 1e-14);
  EXPECT_EQ(McNemarExact(3, 3), 1.0);
  EXPECT_GT(McNemarExact(500, 600), 0.0);
}

TEST(Statistics, SignFlipsByHand) {
  const auto test = [](std::vector<double> d, std::vector<int64_t> clusters) {
    return SignFlipTest(d, clusters);
  };
  EXPECT_EQ(test({1, 1, 1}, {0, 1, 2}), 0.25);
  EXPECT_EQ(test({1, -1, 3}, {0, 1, 2}), 0.75);  // 5 3 3 1 and their mirrors, against 3
  EXPECT_EQ(test({1, 1, 1}, {0, 0, 1}), 0.5);    // two clusters: 3 1 and mirrors
  EXPECT_EQ(test({0, 0, 0}, {0, 1, 2}), 1.0);
  EXPECT_EQ(test({}, {}), 1.0);
  EXPECT_EQ(test({0.1, 0.2, -0.3}, {0, 0, 0}), 1.0);  // a cluster that sums to nearly nothing
}

TEST(Statistics, SignFlipsOfBinaryScoresAreMcNemar) {
  for (const int won : {0, 3, 7}) {
    for (const int lost : {1, 6, 11}) {
      std::vector<double> d(static_cast<size_t>(won), 1.0);
      d.resize(static_cast<size_t>(won + lost), -1.0);
      d.resize(d.size() + 30, 0.0);
      EXPECT_NEAR(SignFlipTest(d, Singles(d.size())), McNemarExact(won, lost), 1e-12);
    }
  }
  std::vector<double> many(40, 1.0);
  std::fill(many.begin(), many.begin() + 12, -1.0);
  EXPECT_NEAR(SignFlipTest(many, Singles(40)), McNemarExact(28, 12), 1e-4);
}

// Beyond 20 clusters the tail is approximated: on a lattice against McNemar's exact test, down to
// probabilities that no number of drawn flips would show.
TEST(Statistics, SignFlipsOfManyClustersOnALattice) {
  for (const int size : {21, 40, 100, 1000}) {
    for (const double z : {0.3, 1.0, 2.0, 3.0, 5.0}) {
      const int excess = static_cast<int>(z * std::sqrt(size));
      const int won = std::min(size, (size + excess) / 2), lost = size - won;
      std::vector<double> d(static_cast<size_t>(won), 0.5);
      d.resize(static_cast<size_t>(size), -0.5);
      const double exact = McNemarExact(won, lost);
      EXPECT_NEAR(SignFlipTest(d, Singles(d.size())) / exact, 1, 0.02) << size << " " << won;
    }
  }
  EXPECT_EQ(SignFlipTest(std::vector<double>(30, 0.25), Singles(30)), std::pow(0.5, 29));
}

// The same where terms differ, against all 2^22 flips.
TEST(Statistics, SignFlipsOfManyClustersAnywhere) {
  Rng rng(3, 1);
  for (const double shift : {0.1, 0.4, 0.7}) {
    std::vector<double> d;
    for (int i = 0; i < 22; ++i) d.push_back(rng.NextDouble() * rng.NextDouble() - 0.25 + shift);
    double observed = 0;
    for (const double v : d) observed += v;
    int64_t hits = 0;
    for (uint32_t flips = 0; flips < (1u << 22); ++flips) {
      double sum = 0;
      for (size_t i = 0; i < d.size(); ++i) sum += (flips >> i & 1) != 0 ? -d[i] : d[i];
      hits += std::abs(sum) >= std::abs(observed) - 1e-9 ? 1 : 0;
    }
    const double exact = std::ldexp(static_cast<double>(hits), -22);
    EXPECT_NEAR(SignFlipTest(d, Singles(22)) / exact, 1, 0.05) << exact;
  }
}

TEST(Statistics, SignFlipsOfVeryManyClustersAreNormal) {
  std::vector<double> d(4999, 1.0);
  std::fill(d.begin(), d.begin() + 2400, -1.0);
  const double saddlepoint = SignFlipTest(d, Singles(d.size()));
  d.insert(d.end(), {1.0, -1.0});
  EXPECT_NEAR(SignFlipTest(d, Singles(d.size())) / saddlepoint, 1, 0.01);
}

TEST(Statistics, HolmByHand) {
  EXPECT_THAT(HolmAdjust(std::vector<double>{0.01, 0.04, 0.03, 0.005}),
              ElementsAre(0.03, 0.06, 0.06, 0.02));
  EXPECT_THAT(HolmAdjust(std::vector<double>{0.5, 0.9}), ElementsAre(1.0, 1.0));
  EXPECT_TRUE(HolmAdjust({}).empty());
}

TEST(Statistics, ProbabilitiesHaveOneForm) {
  EXPECT_EQ(PText(0.0004), "<0.001");
  EXPECT_EQ(PText(0.00099), "<0.001");
  EXPECT_EQ(PText(0.001), "0.001");
  EXPECT_EQ(PText(0.0124), "0.012");
  EXPECT_EQ(PText(1), "1");
  EXPECT_EQ(PSentence(0.0004), "p < 0.001");
  EXPECT_EQ(PSentence(0.0124), "p = 0.012");
  EXPECT_EQ(PSentence(1), "p = 1");
}

TEST(Statistics, WelchByHand) {
  // Variances 2 and 2 of two values each: standard error sqrt(2), two degrees of freedom.
  const TwoSampleResult r = WelchTest(std::vector<double>{0, 2}, std::vector<double>{3, 5}, 0.95);
  EXPECT_EQ(r.difference, 3.0);
  EXPECT_NEAR(r.standard_error, std::sqrt(2.0), 1e-15);
  const double t = 3 / std::sqrt(2.0);
  EXPECT_NEAR(r.p, 1 - t / std::sqrt(2 + t * t), 1e-12);
  EXPECT_NEAR(r.interval.high - 3, 4.302652729911275 * std::sqrt(2.0), 1e-9);
  EXPECT_EQ(WelchTest(std::vector<double>{1}, std::vector<double>{2, 3}).p, 1.0);
  EXPECT_TRUE(
      std::isinf(WelchTest(std::vector<double>{1}, std::vector<double>{2, 3}).interval.high));
  EXPECT_EQ(WelchTest(std::vector<double>{1, 1}, std::vector<double>{2, 2}).p, 0.0);
}

TEST(Statistics, MeasuredMeanByHand) {
  // Variance 4 of three values: standard error 2 / sqrt(3), two degrees of freedom.
  const Estimate e = MeasuredMean(std::vector<double>{1, 3, 5});
  EXPECT_EQ(e.value, 3.0);
  EXPECT_NEAR(e.standard_error, 2 / std::sqrt(3.0), 1e-15);
  EXPECT_NEAR(e.interval.high - 3, 4.302652729911275 * 2 / std::sqrt(3.0), 1e-9);
  EXPECT_NEAR(e.interval.low, 6 - e.interval.high, 1e-12);
  EXPECT_TRUE(std::isinf(MeasuredMean(std::vector<double>{1}).interval.high));
}

TEST(Statistics, ClusterNumbersFollowTheGroups) {
  EXPECT_THAT(ClusterNumbers(std::vector<std::string>{"b", "a", "b", "c"}),
              ElementsAre(0, 1, 0, 2));
}

TEST(Statistics, StandardErrorByHand) {
  // Sums 1 and 2 of two values each around the mean 0.75: residuals -0.5 and 0.5.
  const Estimate e =
      MeanInterval(std::vector<double>{1, 0, 1, 1}, std::vector<int64_t>{4, 4, 9, 9});
  EXPECT_EQ(e.value, 0.75);
  EXPECT_EQ(e.samples, 4);
  EXPECT_EQ(e.clusters, 2);
  EXPECT_NEAR(e.standard_error, std::sqrt(2 * 0.5) / 4, 1e-15);
  // Two clusters of means 0.5 and 1: nothing outside can be drawn.
  EXPECT_EQ(e.interval.low, 0.5);
  EXPECT_EQ(e.interval.high, 1.0);
}

TEST(Statistics, IntervalsSayWhatIsKnown) {
  EXPECT_TRUE(
      std::isinf(MeanInterval(std::vector<double>{1}, std::vector<int64_t>{0}).interval.low));
  const std::vector<double> equal(100, 0.0);
  const Interval bare = MeanInterval(equal, Singles(100)).interval;
  EXPECT_EQ(bare.low, 0.0);
  EXPECT_EQ(bare.high, 0.0);
  // 1 - 0.025^(1/100)
  EXPECT_NEAR(MeanInterval(equal, Singles(100), {.reach = 1}).interval.high, 0.0362167, 1e-7);
  Rng rng(1, 1);
  std::vector<double> values(300);
  for (double& v : values) v = rng.NextGaussian();
  const Estimate a = MeanInterval(values, Singles(300)), b = MeanInterval(values, Singles(300));
  EXPECT_EQ(a.interval.low, b.interval.low);
  EXPECT_NE(a.interval.low, MeanInterval(values, Singles(300), {.seed = 1}).interval.low);
  EXPECT_NEAR(a.interval.high - a.value, 1.96 * a.standard_error, 0.1 * a.standard_error);
}

TEST(Statistics, ManyClustersUseTheNormalInterval) {
  Rng rng(2, 1);
  std::vector<double> values(2001);
  for (double& v : values) v = rng.NextDouble();
  const Estimate normal = MeanInterval(values, Singles(2001));
  EXPECT_NEAR(normal.interval.high - normal.value, 1.959964 * normal.standard_error, 1e-7);
  values.pop_back();
  const Estimate bootstrap = MeanInterval(values, Singles(2000));
  EXPECT_NEAR(bootstrap.interval.high, normal.interval.high, 0.1 * normal.standard_error);
}

TEST(Statistics, AreaByHand) {
  const double e = std::exp(1.0);
  const std::vector<BudgetPoint> points = {{e * e, {1, 1}}, {1, {0, 0.5}}};
  const auto area = [&](double low, double high) {
    return AreaOverLogBytes(points, Singles(2), low, high, {.resamples = 100});
  };
  EXPECT_NEAR(area(1, e * e)->value, (0.5 + 0.75) / 2, 1e-12);
  EXPECT_NEAR(area(e, e * e)->value, (0.75 + 0.875) / 2, 1e-12);
  const Interval interval = area(1, e * e)->interval;
  EXPECT_NEAR(interval.low, 0.5, 1e-9);
  EXPECT_NEAR(interval.high, 0.75, 1e-9);
  ASSERT_FALSE(area(0.5, e).ok());
  EXPECT_THAT(area(0.5, e).error().message, HasSubstr("expected at least 0.5"));
  EXPECT_FALSE(area(1, 8).ok());
}

TEST(Statistics, DetectableEffectByHand) {
  Estimate e;
  e.standard_error = 0.01;
  e.clusters = 100000;
  EXPECT_NEAR(MinimumDetectableEffect(e, 1), 0.01 * (1.959964 + 0.841621), 1e-7);
  e.standard_error = 0;
  e.clusters = 100;
  EXPECT_NEAR(MinimumDetectableEffect(e, 1), 0.0362167, 1e-7);
}

TEST(Statistics, VerdictsByHand) {
  Evidence e;
  e.samples = 100;
  e.value = -0.02;
  e.interval = {-0.03, -0.01};
  e.equivalence = {-0.028, -0.012};
  EXPECT_EQ(Decide(e, 0.01, {.margin = 0.01}), Verdict::kWorse);
  EXPECT_EQ(Decide(e, 0.01, {.margin = 0.03}), Verdict::kSame) << "real, and too small to matter";
  EXPECT_EQ(Decide(e, 0.06, {.margin = 0.01}), Verdict::kUndecided);
  EXPECT_EQ(Decide(e, 0.01, {.margin = 0.01, .tolerance = 0.02}), Verdict::kUndecided);
  EXPECT_EQ(Decide(e, 0.01, {.margin = 0.01, .tolerance = 0.005}), Verdict::kWorse);
  e.value = 0.02;
  e.interval = {0.01, 0.03};
  e.equivalence = {0.012, 0.028};
  EXPECT_EQ(Decide(e, 0.01, {.margin = 0.01}), Verdict::kBetter);
  EXPECT_EQ(Decide({}, 0, {.margin = 1}), Verdict::kUndecided) << "nothing was measured";
}

// 95% intervals hold the true mean in 95 of 100 cases: skewed values, clusters of 1 to 6 samples
// that share half their variance.
TEST(StatisticsSimulation, Coverage) {
  Rng rng(7, 1);
  int covered = 0;
  constexpr int kTrials = 600;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values;
    std::vector<int64_t> clusters;
    for (int64_t c = 0; c < 60; ++c) {
      const double shared = -std::log(1 - rng.NextDouble());
      for (uint64_t i = 0, n = 1 + rng.NextBelow(6); i < n; ++i) {
        values.push_back(shared - std::log(1 - rng.NextDouble()));
        clusters.push_back(c);
      }
    }
    const Interval interval =
        MeanInterval(values, clusters, {.resamples = 1000, .seed = 3}).interval;
    covered += interval.low <= 2.0 && 2.0 <= interval.high ? 1 : 0;
  }
  EXPECT_GE(covered, 0.92 * kTrials);
  EXPECT_LE(covered, 0.98 * kTrials);
}

// Paired 0/1 scores of `count` samples: `lost` went from 1 to 0, `won` from 0 to 1.
Evidence CompareFlips(int count, int won, int lost) {
  std::vector<double> a(static_cast<size_t>(count), 0.0), b = a;
  for (size_t i = 0; i < a.size(); ++i) a[i] = b[i] = i % 2 == 0 ? 1.0 : 0.0;
  for (size_t k = 0; k < static_cast<size_t>(lost); ++k) b[2 * k] = 0;
  for (size_t k = 0; k < static_cast<size_t>(won); ++k) b[2 * k + 1] = 1;
  return ComparePaired(a, b, Singles(a.size()), 0.05, {.resamples = 2000, .reach = 1});
}

// What 400 paired samples can show of a loss of 2 points: 8 samples that got worse are enough when
// at most 2 others changed either way; 3 are one too many for any exact test at 5%. Within a
// grid Holm's correction allows 6 comparisons.
TEST(StatisticsSimulation, TwoPointsOfFourHundredAreFound) {
  for (const int churn : {0, 1, 2, 3}) {
    const Evidence e = CompareFlips(400, churn, 8 + churn);
    EXPECT_EQ(e.value, -0.02);
    EXPECT_EQ(e.test, "exact McNemar");
    EXPECT_EQ(Decide(e, e.p, {.margin = 0.01}), churn <= 2 ? Verdict::kWorse : Verdict::kUndecided)
        << churn;
  }
  std::vector<double> grid(6, 1.0);
  grid[3] = CompareFlips(400, 0, 8).p;
  EXPECT_LT(HolmAdjust(grid)[3], 0.05);
  grid.push_back(1.0);
  EXPECT_GT(HolmAdjust(grid)[3], 0.05);
}

TEST(StatisticsSimulation, EqualScoresAreTheSameOnlyWhenThereAreEnough) {
  EXPECT_EQ(Decide(CompareFlips(400, 0, 0), 1, {.margin = 0.01}), Verdict::kSame);
  EXPECT_EQ(Decide(CompareFlips(100, 0, 0), 1, {.margin = 0.01}), Verdict::kUndecided);
  EXPECT_EQ(Decide(CompareFlips(100, 0, 0), 1, {.margin = 0.03}), Verdict::kSame);
}

// Random flips with probability 2% are 8 only on average: fewer than 6 come up in a fifth of all
// cases, and no exact test can find those.
TEST(StatisticsSimulation, RandomLossOfTwoPointsHasThePowerThatIsPossible) {
  Rng rng(8, 1);
  int found = 0;
  constexpr int kTrials = 300;
  for (int trial = 0; trial < kTrials; ++trial) {
    int lost = 0;
    for (int i = 0; i < 400; ++i) lost += rng.NextBelow(50) == 0 ? 1 : 0;
    found += McNemarExact(0, lost) < 0.05 ? 1 : 0;
  }
  EXPECT_GE(found, 0.74 * kTrials);  // P(lost >= 6) = 0.811
  EXPECT_LE(found, 0.88 * kTrials);
}

// 100 sets of 10 comparisons of equals, 5% of whose samples change either way.
TEST(StatisticsSimulation, EqualsAreRarelyWorse) {
  Rng rng(9, 1);
  int worse_sets = 0, better_sets = 0;
  for (int set = 0; set < 100; ++set) {
    std::vector<Evidence> all;
    std::vector<double> p_values;
    for (int group = 0; group < 10; ++group) {
      std::vector<double> a, b;
      std::vector<int64_t> clusters;
      for (int64_t i = 0; i < 400; ++i) {
        a.push_back(rng.NextBelow(2) == 0 ? 0.0 : 1.0);
        b.push_back(rng.NextBelow(10) == 0 ? (rng.NextBelow(2) == 0 ? 0.0 : 1.0) : a.back());
        clusters.push_back(group % 2 == 0 ? i : i / 4);
      }
      all.push_back(ComparePaired(a, b, clusters, 0.05, {.resamples = 400, .seed = 1, .reach = 1}));
      p_values.push_back(all.back().p);
    }
    const std::vector<double> adjusted = HolmAdjust(p_values);
    bool worse = false, better = false;
    for (size_t i = 0; i < all.size(); ++i) {
      const Verdict verdict = Decide(all[i], adjusted[i], {.margin = 0.01});
      worse = worse || verdict == Verdict::kWorse;
      better = better || verdict == Verdict::kBetter;
    }
    worse_sets += worse ? 1 : 0;
    better_sets += better ? 1 : 0;
  }
  EXPECT_LE(worse_sets, 5);
  EXPECT_LE(better_sets, 5);
  RecordProperty("worse_sets_of_100", worse_sets);
}

}  // namespace
}  // namespace kvgauge
