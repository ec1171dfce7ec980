// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them. Nothing here depends on the locale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kvgauge::report {

enum class Unit {
  kNumber,    // 1234.5 -> "1,235"; three significant digits below 1,000
  kWhole,     // 12; an axis has a tick at no fraction
  kPercent,   // a fraction: 0.123 -> "12.3%"
  kPoints,    // a signed fraction, in points of a hundred: -0.012 -> "−1.2"
  kBytes,     // "12.8 B", "1.5 KiB"
  kSeconds,   // "1.25 s", "34.0 ms", "120 µs", "2.50 min", "1.75 h"
  kTokens,    // 4096 -> "4K", 5000 -> "5,000"
  kRatio,     // "1.53×"
  kDecimals,  // three decimals, fewer for large numbers
};

// Not a number: "–".
std::string Format(double value, Unit unit);
std::string Format(const std::optional<double>& value, Unit unit);
// With as many digits after the point; no minus before zero.
std::string FormatDecimals(double value, int digits);
// With at most the digits that tell ticks apart: 0.2 -> "20%", 0.25 -> "25%", 0.125 -> "12.5%".
std::string FormatTick(double value, Unit unit);
// "1 sample", "1,200 samples".
std::string Plural(int64_t count, const std::string& one, const std::string& many);

}  // namespace kvgauge::report
