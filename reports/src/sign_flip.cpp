// SPDX-License-Identifier: Apache-2.0
#include "src/sign_flip.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/distributions.h"

namespace kvgauge {
namespace {

// Beyond it the normal distribution is as good and much cheaper.
constexpr size_t kMaxSaddlepoint = 5000;
constexpr int kMaxSteps = 80;

// The largest number that all sizes are multiples of; 0 where it would be tiny.
double LatticeUnit(const std::vector<double>& sizes) {
  const double largest = *std::ranges::max_element(sizes);
  const double tolerance = 1e-9 * largest;
  double unit = 0;
  for (double a : sizes) {
    double b = unit;
    while (b > tolerance) {
      a = std::fmod(a, b);
      if (b - a <= tolerance) a = 0;
      std::swap(a, b);
    }
    unit = a;
    if (unit < 1e-3 * largest) return 0;
  }
  return unit;
}

// The cumulant function of the sum and its first two derivatives.
struct Cumulants {
  double value = 0, slope = 0, curvature = 0;
};

Cumulants At(const std::vector<double>& sizes, double t) {
  Cumulants k;
  for (const double a : sizes) {
    const double x = a * t, tanh = std::tanh(x);
    k.value += x + std::log1p(std::exp(-2 * x)) - std::log(2.0);
    k.slope += a * tanh;
    k.curvature += a * a * (1 - tanh * tanh);
  }
  return k;
}

// Where the slope is `target`: Newton's steps, halving where they leave the bracket.
double Saddlepoint(const std::vector<double>& sizes, double target, double squares) {
  double low = 0, t = target / squares, high = t;
  while (At(sizes, high).slope < target) high *= 2;
  for (int step = 0; step < kMaxSteps; ++step) {
    const Cumulants k = At(sizes, t);
    (k.slope < target ? low : high) = t;
    double next = k.curvature > 0 ? t + (target - k.slope) / k.curvature : high;
    if (!(next > low && next < high)) next = (low + high) / 2;
    if (std::abs(next - t) <= 1e-10 * next) return next;
    t = next;
  }
  return t;
}

}  // namespace

double SignFlipTail(std::span<const double> terms, double observed) {
  std::vector<double> sizes;
  double total = 0, squares = 0;
  for (const double term : terms) {
    sizes.push_back(std::abs(term));
    total += sizes.back();
    squares += term * term;
  }
  const double smallest = *std::ranges::min_element(sizes);
  const double unit = LatticeUnit(sizes);
  // Sums are two units apart: the tail begins halfway to the next lower one.
  const double s = observed - unit;
  if (s <= 1e-9 * total) return 0.5;
  if (sizes.size() > kMaxSaddlepoint) return NormalCdf(-s / std::sqrt(squares));
  // All signs alike; the next lower sum is twice the smallest term away.
  if (observed > total - smallest) return std::pow(0.5, static_cast<double>(sizes.size()));
  const double t = Saddlepoint(sizes, s, squares);
  const Cumulants k = At(sizes, t);
  const double w = std::sqrt(std::max(0.0, 2 * (t * s - k.value)));
  if (w < 0.05) return NormalCdf(-s / std::sqrt(squares));
  const double step = unit > 0 ? std::sinh(t * unit) / unit : t;
  const double u = step * std::sqrt(k.curvature);
  const double density = std::exp(-w * w / 2) / std::sqrt(2 * M_PI);
  return std::clamp(NormalCdf(-w) + density * (1 / u - 1 / w),
                    std::pow(0.5, static_cast<double>(sizes.size())), 0.5);
}

}  // namespace kvgauge
