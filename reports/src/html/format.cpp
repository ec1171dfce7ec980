// SPDX-License-Identifier: Apache-2.0
#include "src/html/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/strings.h"

namespace kvgauge::report {
namespace {

constexpr const char* kMinus = "−";
constexpr const char* kNothing = "–";

std::string Decimals(double value, int digits) {
  char buffer[400];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), std::abs(value),
                                 std::chars_format::fixed, digits);
  std::string text(buffer, end.ptr);
  const bool zero = text.find_first_not_of("0.") == std::string::npos;
  return value < 0 && !zero ? kMinus + text : text;
}

std::string Commas(double value) {
  const int64_t whole = std::llround(std::abs(value));
  std::string text = WithCommas(whole);
  return value < 0 && whole != 0 ? kMinus + text : text;
}

// Three significant digits, as a fixed number.
std::string Significant(double value) {
  const double size = std::abs(value);
  if (size >= 999.5) return size < 1e15 ? Commas(value) : Decimals(value, 0);
  if (size == 0) return "0";
  if (size < 1e-6) {
    char buffer[40];
    const auto end =
        std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific, 1);
    return {buffer, end.ptr};
  }
  int digits = 2 - static_cast<int>(std::floor(std::log10(size * 1.0005)));
  digits = std::clamp(digits, 0, 8);
  return Decimals(value, digits);
}

// As the terminal shows them. Means have fractions of a byte, which count where bytes are few.
std::string Bytes(double value) {
  constexpr double kMost = 9e18;
  const double size = std::min(std::abs(value), kMost);
  const bool fraction = size < 1023.95 && size != std::floor(size);
  const std::string text =
      fraction ? Decimals(size, 1) + " B" : HumanBytes(static_cast<int64_t>(std::llround(size)));
  return value < 0 && size > 0 ? kMinus + text : text;
}

std::string Seconds(double value) {
  const double size = std::abs(value);
  if (size == 0) return "0 s";
  if (size < 0.9995e-3) return Significant(value * 1e6) + " µs";
  if (size < 0.9995) return Significant(value * 1e3) + " ms";
  if (size < 99.95) return Significant(value) + " s";
  if (size < 99.95 * 60) return Significant(value / 60) + " min";
  return Significant(value / 3600) + " h";
}

std::string Tokens(double value) {
  const auto whole = static_cast<int64_t>(std::llround(value));
  if (whole >= 1024 && whole % 1024 == 0) {
    return whole % (1024 * 1024) == 0 ? StrCat(whole / (1024 * 1024), "M")
                                      : StrCat(whole / 1024, "K");
  }
  return Commas(value);
}

void TrimZeros(std::string& text) {
  if (text.find('.') == std::string::npos) return;
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
}

}  // namespace

std::string Format(double value, Unit unit) {
  if (!std::isfinite(value)) return kNothing;
  switch (unit) {
    case Unit::kNumber:
      return Significant(value);
    case Unit::kWhole:
      return Commas(value);
    case Unit::kPercent:
      return Decimals(100 * value, 1) + "%";
    case Unit::kPoints: {
      std::string text = Decimals(100 * value, 1);
      return value > 0 && text != "0.0" ? "+" + text : text;
    }
    case Unit::kBytes:
      return Bytes(value);
    case Unit::kSeconds:
      return Seconds(value);
    case Unit::kTokens:
      return Tokens(value);
    case Unit::kRatio:
      return (value < 9.995 ? Decimals(value, 2) : Significant(value)) + "×";
    case Unit::kDecimals:
      return std::abs(value) < 10 ? Decimals(value, 3) : Significant(value);
  }
  return kNothing;
}

std::string Format(const std::optional<double>& value, Unit unit) {
  return value ? Format(*value, unit) : kNothing;
}

std::string FormatDecimals(double value, int digits) {
  return std::isfinite(value) ? Decimals(value, digits) : kNothing;
}

std::string FormatTick(double value, Unit unit) {
  std::string text;
  switch (unit) {
    case Unit::kPercent:
      text = Decimals(100 * value, 2);
      TrimZeros(text);
      return text + "%";
    case Unit::kPoints:
      text = Decimals(100 * value, 2);
      TrimZeros(text);
      return text;
    case Unit::kRatio:
      text = Decimals(value, 2);
      TrimZeros(text);
      return text + "×";
    case Unit::kNumber:
    case Unit::kDecimals:
      if (std::abs(value) >= 1000) return Commas(value);
      text = Decimals(value, 6);
      TrimZeros(text);
      return text;
    case Unit::kBytes: {
      // Ticks may lie closer than one decimal tells.
      constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB"};
      size_t of = 0;
      for (; std::abs(value) >= 1023.5 && of + 1 < std::size(kUnits); ++of) value /= 1024;
      text = Significant(value);
      TrimZeros(text);
      return text + kUnits[of];
    }
    default: {
      text = Format(value, unit);
      const size_t blank = text.find(' ');
      std::string digits = text.substr(0, blank);
      TrimZeros(digits);
      return blank == std::string::npos ? digits : digits + text.substr(blank);
    }
  }
}

std::string Plural(int64_t count, const std::string& one, const std::string& many) {
  return StrCat(WithCommas(count), " ", count == 1 ? one : many);
}

}  // namespace kvgauge::report
