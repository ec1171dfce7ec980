// SPDX-License-Identifier: Apache-2.0
#include "core/decimal.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace kvgauge {

double RoundDecimal(double value, int digits) {
  if (digits < 0 || !std::isfinite(value)) return value;
  std::array<char, 400> text = {};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return std::strtod(text.data(), nullptr);
}

}  // namespace kvgauge
