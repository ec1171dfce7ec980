// SPDX-License-Identifier: Apache-2.0
#include "core/last_number.h"

#include <charconv>

namespace kvgauge {

std::optional<int64_t> LastNumber(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  const size_t last = text.find_last_of(kDigits);
  if (last == std::string_view::npos) return std::nullopt;
  text = text.substr(0, last + 1);
  const size_t before = text.find_last_not_of(kDigits);
  if (before != std::string_view::npos) text.remove_prefix(before + 1);
  int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc()) return std::nullopt;
  return number;
}

}  // namespace kvgauge
