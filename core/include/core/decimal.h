// SPDX-License-Identifier: Apache-2.0
// Rounding to decimals as published scores are rounded.
#pragma once

namespace kvgauge {

// The nearest number of so many decimals to the exact binary value, ties to even: Python's
// round(value, digits). Negative digits leave the value as it is. Deterministic.
double RoundDecimal(double value, int digits);

}  // namespace kvgauge
