// SPDX-License-Identifier: Apache-2.0
// The distributions that statistics need and the standard library lacks.
#pragma once

#include <limits>

namespace kvgauge {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

double NormalCdf(double z);
// Precondition: 0 < p < 1.
double NormalQuantile(double p);
double StudentCdf(double t, double degrees);
// Precondition: 0 < p < 1, degrees > 0.
double StudentQuantile(double p, double degrees);

}  // namespace kvgauge
