// SPDX-License-Identifier: Apache-2.0
#include "src/python_text.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/json.h"

namespace kvgauge {

size_t BlankLength(std::string_view text) {
  constexpr std::array<std::string_view, 19> kWide = {
      "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
      "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
      "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
      "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
  if (text.empty()) return 0;
  const char c = text[0];
  if (c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= '\x1f')) return 1;
  const auto starts = [&](std::string_view blank) { return text.starts_with(blank); };
  const auto found = std::find_if(kWide.begin(), kWide.end(), starts);
  return found == kWide.end() ? 0 : found->size();
}

std::string_view PythonStrip(std::string_view text) {
  for (size_t length = BlankLength(text); length > 0; length = BlankLength(text)) {
    text.remove_prefix(length);
  }
  while (!text.empty()) {
    size_t last = text.size() - 1;  // of the final character
    while (last > 0 && (static_cast<uint8_t>(text[last]) & 0xc0) == 0x80) --last;
    if (BlankLength(text.substr(last)) != text.size() - last) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t begin = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, begin)) {
    out.append(text.substr(begin, at - begin)).append(to);
    begin = at + from.size();
  }
  return out.append(text.substr(begin));
}

std::optional<std::string> PythonScalar(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_number()) return value.dump();
  return std::nullopt;
}

}  // namespace kvgauge
