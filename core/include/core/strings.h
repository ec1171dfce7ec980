// SPDX-License-Identifier: Apache-2.0
// Small string helpers shared by every room.
#pragma once

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace kvgauge {

// Concatenates anything that streams: StrCat("layer ", 3, ": ", name).
template <class... Args>
std::string StrCat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return std::move(out).str();
}

std::string Join(const std::vector<std::string>& parts, std::string_view separator);
std::vector<std::string> Split(std::string_view text, char separator);
std::string_view Trim(std::string_view text);

// "1.5 MiB", "312 B".
std::string HumanBytes(int64_t bytes);
// 1234567 -> "1,234,567".
std::string WithCommas(int64_t value);

// The known name nearest to `name` by edit distance, when it is near enough to be a slip.
std::optional<std::string> NearestName(std::string_view name,
                                       const std::vector<std::string>& known);
// " (did you mean 'x'?)" or ""; for the end of an error message.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& known);

// First byte that is not part of well-formed UTF-8, or npos.
size_t FindInvalidUtf8(std::string_view text);
// Text with every ill-formed stretch (core/utf8.h) replaced by one U+FFFD, as Python replaces it.
std::string RepairUtf8(std::string_view text);
// Appends a code point as UTF-8. Surrogates and values past U+10FFFF become U+FFFD.
void AppendUtf8(std::string& out, char32_t code_point);

// Printable form for messages: quotes, escapes control bytes, cuts after `limit` bytes.
std::string Quoted(std::string_view text, size_t limit = 60);

}  // namespace kvgauge
