// SPDX-License-Identifier: Apache-2.0
#include "metrics/numbers.h"

#include <cstdlib>
#include <limits>

namespace kvgauge::metrics {
namespace {

size_t DigitsEnd(TextView text, size_t at) {
  while (at < text.size() && IsDigit(text[at])) ++at;
  return at;
}

// A run of digits with single underscores between them, as ASCII. Empty: there is none.
std::string TakeDigits(TextView text, size_t& at) {
  std::string digits;
  while (at < text.size()) {
    if (IsDigit(text[at])) {
      digits += static_cast<char>('0' + DigitValue(text[at]));
    } else if (text[at] != '_' || digits.empty() || at + 1 == text.size() ||
               !IsDigit(text[at + 1])) {
      break;
    }
    ++at;
  }
  return digits;
}

// Unlike str.strip(), numbers keep the separators U+001C to U+001F.
TextView Bare(TextView text) {
  const auto blank = [](char32_t c) { return IsSpace(c) && !(c >= 0x1C && c <= 0x1F); };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string TakeSign(TextView text, size_t& at) {
  if (at >= text.size() || (text[at] != '-' && text[at] != '+')) return "";
  return text[at++] == '-' ? "-" : "";
}

}  // namespace

int DigitValue(char32_t digit) {
  // The ten digits of every script lie in a row behind their zero.
  char32_t zero = digit;
  while (IsDigit(zero - 1)) --zero;
  return static_cast<int>((digit - zero) % 10);
}

std::optional<std::string> PythonInt(TextView text) {
  text = Bare(text);
  size_t at = 0;
  const std::string sign = TakeSign(text, at);
  const std::string digits = TakeDigits(text, at);
  if (digits.empty() || at != text.size()) return std::nullopt;
  const size_t first = digits.find_first_not_of('0');
  return first == std::string::npos ? "0" : sign + digits.substr(first);
}

std::optional<double> PythonFloat(TextView text) {
  text = Bare(text);
  size_t at = 0;
  std::string number = TakeSign(text, at);
  const bool negative = !number.empty();
  const Text name = Lower(text.substr(at));
  if (name == U"inf" || name == U"infinity") {
    const double infinity = std::numeric_limits<double>::infinity();
    return negative ? -infinity : infinity;
  }
  if (name == U"nan") return std::numeric_limits<double>::quiet_NaN();
  const std::string whole = TakeDigits(text, at);
  number += whole;
  std::string decimals;
  if (at < text.size() && text[at] == '.') {
    decimals = TakeDigits(text, ++at);
    number.append(".").append(decimals);
  }
  if (whole.empty() && decimals.empty()) return std::nullopt;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    const std::string sign = TakeSign(text, at), exponent = TakeDigits(text, at);
    if (exponent.empty()) return std::nullopt;
    number.append("e").append(sign).append(exponent);
  }
  if (at != text.size()) return std::nullopt;
  return std::strtod(number.c_str(), nullptr);
}

TextView FirstNumber(TextView text) {
  size_t begin = 0;
  while (begin < text.size() && !IsDigit(text[begin])) ++begin;
  size_t end = DigitsEnd(text, begin);
  if (end + 1 < text.size() && text[end] == '.' && IsDigit(text[end + 1])) {
    end = DigitsEnd(text, end + 1);
  }
  return text.substr(begin, end - begin);
}

}  // namespace kvgauge::metrics
