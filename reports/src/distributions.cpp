// SPDX-License-Identifier: Apache-2.0
#include "src/distributions.h"

#include <cmath>
#include <numbers>

#include "core/check.h"

namespace kvgauge {
namespace {

// The regularised incomplete beta function by its continued fraction (modified Lentz), for x below
// the mean, where it converges fast.
double BetaFraction(double x, double a, double b) {
  constexpr double kTiny = 1e-300;
  double c = 1.0;
  double d = 1.0 - (a + b) * x / (a + 1.0);
  d = 1.0 / (std::abs(d) < kTiny ? kTiny : d);
  double product = d;
  for (int m = 1; m <= 10000; ++m) {
    const double even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
    double change = 1.0;
    for (const double term : {even, odd}) {
      d = 1.0 + term * d;
      d = 1.0 / (std::abs(d) < kTiny ? kTiny : d);
      c = 1.0 + term / c;
      if (std::abs(c) < kTiny) c = kTiny;
      change = c * d;
      product *= change;
    }
    if (std::abs(change - 1.0) < 1e-15) break;
  }
  const double log_front =
      std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x);
  return std::exp(log_front) * product / a;
}

double IncompleteBeta(double x, double a, double b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  return x < (a + 1) / (a + b + 2) ? BetaFraction(x, a, b) : 1 - BetaFraction(1 - x, b, a);
}

// The point at which an increasing function reaches `p`, by bisection to the last bit.
template <class Cdf>
double Invert(double p, const Cdf& cdf) {
  double low = -1, high = 1;
  while (cdf(low) > p) low *= 2;
  while (cdf(high) < p) high *= 2;
  while (true) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return middle;
    (cdf(middle) < p ? low : high) = middle;
  }
}

}  // namespace

double NormalCdf(double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); }

double NormalQuantile(double p) {
  KVG_CHECK(p > 0 && p < 1, "a probability between 0 and 1");
  // The lower half keeps its digits.
  return p <= 0.5 ? Invert(p, NormalCdf) : -Invert(1 - p, NormalCdf);
}

double StudentCdf(double t, double degrees) {
  const double tail = 0.5 * IncompleteBeta(degrees / (degrees + t * t), degrees / 2, 0.5);
  return t > 0 ? 1 - tail : tail;
}

double StudentQuantile(double p, double degrees) {
  KVG_CHECK(p > 0 && p < 1 && degrees > 0, "a probability between 0 and 1, positive degrees");
  const auto cdf = [&](double t) { return StudentCdf(t, degrees); };
  return p <= 0.5 ? Invert(p, cdf) : -Invert(1 - p, cdf);
}

}  // namespace kvgauge
