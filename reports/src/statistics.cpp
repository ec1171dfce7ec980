// SPDX-License-Identifier: Apache-2.0
#include "reports/statistics.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>

#include "core/check.h"
#include "core/rng.h"
#include "core/strings.h"
#include "src/bca.h"
#include "src/distributions.h"
#include "src/sign_flip.h"

namespace kvgauge {
namespace {

constexpr int kMaxEnumerated = 20;

// A cluster as all statistics of means see it.
struct ClusterSum {
  double sum = 0;
  double count = 0;
};

std::vector<ClusterSum> SumClusters(std::span<const double> values,
                                    std::span<const int64_t> clusters) {
  KVG_CHECK(values.size() == clusters.size(), "one cluster number for each value");
  std::map<int64_t, size_t> place;
  std::vector<ClusterSum> sums;
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t at = place.try_emplace(clusters[i], sums.size()).first->second;
    if (at == sums.size()) sums.emplace_back();
    sums[at].sum += values[i];
    sums[at].count += 1;
  }
  return sums;
}

// Jackknife values over clusters, less their mean.
std::vector<double> Influence(std::span<const ClusterSum> sums, double total, double count) {
  double mean = 0;
  std::vector<double> left_out;
  for (const ClusterSum& c : sums) {
    left_out.push_back((total - c.sum) / (count - c.count));
    mean += left_out.back();
  }
  mean /= static_cast<double>(sums.size());
  for (double& v : left_out) v = mean - v;
  return left_out;
}

Interval BootstrapInterval(std::span<const ClusterSum> sums, double total, double count,
                           const ResamplingOptions& options) {
  Rng rng(options.seed, kBootstrapStream);
  std::vector<double> means(static_cast<size_t>(options.resamples));
  for (double& drawn : means) {
    ClusterSum all;
    for (size_t i = 0; i < sums.size(); ++i) {
      const ClusterSum& c = sums[rng.NextBelow(sums.size())];
      all.sum += c.sum;
      all.count += c.count;
    }
    drawn = all.sum / all.count;
  }
  std::ranges::sort(means);
  return BcaInterval(means, total / count, Skewness(Influence(sums, total, count)),
                     (1 - options.confidence) / 2);
}

}  // namespace

std::vector<int64_t> ClusterNumbers(std::span<const std::string> groups) {
  std::map<std::string, int64_t> known;
  std::vector<int64_t> numbers;
  for (const std::string& group : groups) {
    numbers.push_back(known.try_emplace(group, static_cast<int64_t>(known.size())).first->second);
  }
  return numbers;
}

Estimate MeanInterval(std::span<const double> values, std::span<const int64_t> clusters,
                      const ResamplingOptions& options) {
  KVG_CHECK(options.confidence > 0 && options.confidence < 1 && options.resamples > 0,
            "confidence between 0 and 1, some resamples");
  const std::vector<ClusterSum> sums = SumClusters(values, clusters);
  Estimate estimate;
  estimate.samples = static_cast<int64_t>(values.size());
  estimate.clusters = static_cast<int64_t>(sums.size());
  estimate.interval = {-kInfinity, kInfinity};
  if (sums.empty()) return estimate;
  const double count = static_cast<double>(values.size());
  double total = 0;
  for (const ClusterSum& c : sums) total += c.sum;
  estimate.value = total / count;
  if (sums.size() < 2) return estimate;

  double squares = 0;
  for (const ClusterSum& c : sums) {
    const double residual = c.sum - estimate.value * c.count;
    squares += residual * residual;
  }
  const double m = static_cast<double>(sums.size());
  estimate.standard_error = std::sqrt(m / (m - 1) * squares) / count;
  const double tail = (1 - options.confidence) / 2;
  if (estimate.clusters > kMaxBootstrapClusters) {
    const double half = -NormalQuantile(tail) * estimate.standard_error;
    estimate.interval = {estimate.value - half, estimate.value + half};
  } else {
    estimate.interval = BootstrapInterval(sums, total, count, options);
  }
  const double least = options.reach * UnseenShare(estimate.clusters, tail);
  estimate.interval.low = std::min(estimate.interval.low, estimate.value - least);
  estimate.interval.high = std::max(estimate.interval.high, estimate.value + least);
  return estimate;
}

double McNemarExact(int64_t won, int64_t lost) {
  KVG_CHECK(won >= 0 && lost >= 0, "counts");
  const int64_t n = won + lost;
  double tail = 0;
  for (int64_t k = 0; k <= std::min(won, lost); ++k) {
    tail += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) -
                     static_cast<double>(n) * std::log(2.0));
  }
  return std::min(1.0, 2 * tail);
}

double SignFlipTest(std::span<const double> differences, std::span<const int64_t> clusters) {
  std::vector<double> sums;
  double observed = 0, size = 0;
  for (const ClusterSum& c : SumClusters(differences, clusters)) {
    if (c.sum == 0) continue;  // either sign gives the same
    sums.push_back(c.sum);
    observed += c.sum;
    size += std::abs(c.sum);
  }
  // Sums in another order differ in their last bits; equal ones must count as equal.
  const double threshold = std::abs(observed) - 1e-12 * size;
  const auto as_far = [&](double sum) { return std::abs(sum) >= threshold; };
  if (sums.size() <= kMaxEnumerated) {
    // Gray code: each step flips one sign. Both signs of the last cluster are mirror images.
    const int64_t half = int64_t{1} << (sums.empty() ? 0 : sums.size() - 1);
    double current = std::accumulate(sums.begin(), sums.end(), 0.0);
    std::vector<double> signs(sums.size(), 1.0);
    int64_t hits = as_far(current) ? 1 : 0;
    for (int64_t step = 1; step < half; ++step) {
      const auto bit = static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(step)));
      signs[bit] = -signs[bit];
      current += 2 * signs[bit] * sums[bit];
      hits += as_far(current) ? 1 : 0;
    }
    return static_cast<double>(hits) / static_cast<double>(half);
  }
  return 2 * SignFlipTail(sums, std::abs(observed));
}

std::string PText(double p) {
  if (p >= 0.9995) return "1";
  if (p < 0.001) return "<0.001";
  std::array<char, 16> text = {};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), p, std::chars_format::fixed, 3);
  return {text.data(), end.ptr};
}

std::string PSentence(double p) {
  const std::string text = PText(p);
  return text.starts_with('<') ? StrCat("p < ", text.substr(1)) : StrCat("p = ", text);
}

std::vector<double> HolmAdjust(std::span<const double> p_values) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return p_values[i]; });
  std::vector<double> adjusted(p_values.size());
  double largest = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const double scaled = p_values[order[rank]] * static_cast<double>(order.size() - rank);
    largest = std::max(largest, std::min(1.0, scaled));
    adjusted[order[rank]] = largest;
  }
  return adjusted;
}

double MinimumDetectableEffect(const Estimate& difference, double reach, double alpha,
                               double power) {
  if (difference.clusters < 2) return kInfinity;
  const double factor = NormalQuantile(1 - alpha / 2) + NormalQuantile(power);
  const double least = std::max(factor * difference.standard_error,
                                reach * UnseenShare(difference.clusters, alpha / 2));
  return reach > 0 && least > reach ? kInfinity : least;
}

TwoSampleResult WelchTest(std::span<const double> first, std::span<const double> second,
                          double confidence) {
  TwoSampleResult result;
  result.interval = {-kInfinity, kInfinity};
  double means[2] = {}, variances[2] = {}, sizes[2] = {};
  int side = 0;
  for (const std::span<const double> values : {first, second}) {
    if (values.empty()) return result;
    sizes[side] = static_cast<double>(values.size());
    means[side] = std::accumulate(values.begin(), values.end(), 0.0) / sizes[side];
    for (const double v : values) variances[side] += (v - means[side]) * (v - means[side]);
    ++side;
  }
  result.difference = means[1] - means[0];
  if (first.size() < 2 || second.size() < 2) return result;
  double parts[2];
  for (int i = 0; i < 2; ++i) parts[i] = variances[i] / (sizes[i] - 1) / sizes[i];
  result.standard_error = std::sqrt(parts[0] + parts[1]);
  if (result.standard_error == 0) {
    result.interval = {result.difference, result.difference};
    result.p = result.difference == 0 ? 1 : 0;
    return result;
  }
  const double degrees =
      (parts[0] + parts[1]) * (parts[0] + parts[1]) /
      (parts[0] * parts[0] / (sizes[0] - 1) + parts[1] * parts[1] / (sizes[1] - 1));
  const double t = std::abs(result.difference) / result.standard_error;
  result.p = 2 * StudentCdf(-t, degrees);
  const double half = StudentQuantile((1 + confidence) / 2, degrees) * result.standard_error;
  result.interval = {result.difference - half, result.difference + half};
  return result;
}

Estimate MeasuredMean(std::span<const double> values, double confidence) {
  Estimate result;
  result.samples = result.clusters = static_cast<int64_t>(values.size());
  result.interval = {-kInfinity, kInfinity};
  if (values.empty()) return result;
  const double size = static_cast<double>(values.size());
  result.value = std::accumulate(values.begin(), values.end(), 0.0) / size;
  if (values.size() < 2) return result;
  double squares = 0;
  for (const double v : values) squares += (v - result.value) * (v - result.value);
  result.standard_error = std::sqrt(squares / (size - 1) / size);
  const double half = StudentQuantile((1 + confidence) / 2, size - 1) * result.standard_error;
  result.interval = {result.value - half, result.value + half};
  return result;
}

Result<Estimate> AreaOverLogBytes(std::span<const BudgetPoint> points,
                                  std::span<const int64_t> clusters, double low_bytes,
                                  double high_bytes, const ResamplingOptions& options) {
  KVG_CHECK(low_bytes > 0 && low_bytes < high_bytes, "a range of positive bytes");
  std::vector<const BudgetPoint*> order;
  for (const BudgetPoint& point : points) {
    KVG_CHECK(point.scores.size() == clusters.size(), "one score a sample at every budget");
    KVG_CHECK(point.bytes > 0, "a budget of positive bytes");
    order.push_back(&point);
  }
  std::ranges::stable_sort(order, {}, [](const BudgetPoint* p) { return p->bytes; });
  if (order.empty() || order.front()->bytes > low_bytes || order.back()->bytes < high_bytes) {
    return BadInput(StrCat(
        "area over bytes: the budgets measured cover ",
        order.empty() ? "nothing" : StrCat(order.front()->bytes, " to ", order.back()->bytes),
        ", expected at least ", low_bytes, " to ", high_bytes));
  }
  // The area is a weighted sum of the scores at the budgets: between neighbours a and b the line's
  // integral over [from, to] in log(bytes), divided by the whole width.
  const double width = std::log(high_bytes / low_bytes);
  std::vector<double> heights(clusters.size(), 0.0);
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    const double a = std::log(order[i]->bytes), b = std::log(order[i + 1]->bytes);
    const double from = std::max(a, std::log(low_bytes)), to = std::min(b, std::log(high_bytes));
    if (to <= from) continue;
    const double right = ((from + to) / 2 - a) / (b - a);  // weight of b at the middle
    const double share = (to - from) / width;
    for (size_t k = 0; k < heights.size(); ++k) {
      heights[k] += share * ((1 - right) * order[i]->scores[k] + right * order[i + 1]->scores[k]);
    }
  }
  return MeanInterval(heights, clusters, options);
}

}  // namespace kvgauge
