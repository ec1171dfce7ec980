// SPDX-License-Identifier: Apache-2.0
// Directions between two others, on the sphere, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace kvgauge {

inline double DotOf(const float* a, const float* b, int64_t dim) {
  double sum = 0;
  for (int64_t d = 0; d < dim; ++d) sum += double{a[d]} * b[d];
  return sum;
}

// Two vectors, their lengths and the angle between them; 0 if a vector is zero.
struct Arc {
  Arc(const float* a_row, const float* b_row, int64_t numbers)
      : a(a_row),
        b(b_row),
        dim(numbers),
        a_norm(std::sqrt(DotOf(a, a, dim))),
        b_norm(std::sqrt(DotOf(b, b, dim))) {
    const double norms = a_norm * b_norm;
    const double cosine = norms > 0 ? DotOf(a, b, dim) / norms : 1.0;
    angle = std::acos(std::clamp(cosine, -1.0, 1.0));
  }

  // The direction at `weight` of the way from a to b; zeros where there is none.
  void Between(double weight, float* out) const {
    // Below this the arc is as good as straight.
    constexpr double kStraightSine = 1e-4;
    const double sine = std::sin(angle);
    const bool straight = sine < kStraightSine;
    const double from_a = straight ? 1 - weight : std::sin((1 - weight) * angle) / sine;
    const double from_b = straight ? weight : std::sin(weight * angle) / sine;
    const double a_share = a_norm > 0 ? from_a / a_norm : 0;
    const double b_share = b_norm > 0 ? from_b / b_norm : 0;
    double squares = 0;
    for (int64_t d = 0; d < dim; ++d) {
      const double sum = a_share * a[d] + b_share * b[d];
      squares += sum * sum;
    }
    const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
    for (int64_t d = 0; d < dim; ++d) {
      out[d] = static_cast<float>(scale * (a_share * a[d] + b_share * b[d]));
    }
  }

  const float *a, *b;
  int64_t dim;
  double a_norm, b_norm, angle;
};

}  // namespace kvgauge
