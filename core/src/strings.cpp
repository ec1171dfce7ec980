// SPDX-License-Identifier: Apache-2.0
#include "core/strings.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/near_names.h"
#include "core/utf8.h"

namespace kvgauge {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Capitals are no difference.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (Lower(a[i - 1]) == Lower(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string Join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    if (end == std::string_view::npos) break;
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\f\v";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string HumanBytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  // With one decimal, 1023.95 is 1024.0 of a unit, which is 1.0 of the next.
  while (value >= (unit == 0 ? 1024.0 : 1023.95) && unit < 5) {
    value /= 1024.0;
    ++unit;
  }
  char buffer[48];
  std::snprintf(buffer, sizeof(buffer), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return buffer;
}

std::string WithCommas(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::optional<std::string> NearestName(std::string_view name,
                                       const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = &candidate;
    }
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

std::string DidYouMean(std::string_view name, const std::vector<std::string>& known) {
  const std::optional<std::string> nearest = NearestName(name, known);
  if (!nearest) return "";
  return StrCat(" (did you mean '", *nearest, "'?)");
}

std::vector<std::string> NearNames(std::string_view name, const std::vector<std::string>& known,
                                   size_t most) {
  const size_t far = std::max<size_t>(2, name.size() / 3) + 1;
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& candidate : known) {
    size_t distance = EditDistance(name, candidate);
    const std::string_view start = std::string_view(candidate).substr(0, name.size());
    if (name.size() >= 3 && EditDistance(name, start) == 0) distance = std::min(distance, far - 1);
    if (distance < far) near.emplace_back(distance, candidate);
  }
  std::sort(near.begin(), near.end());
  if (near.size() > most) near.resize(most);
  std::vector<std::string> names;
  names.reserve(near.size());
  for (auto& [distance, candidate] : near) names.push_back(std::move(candidate));
  return names;
}

std::string DidYouMeanOneOf(std::string_view name, const std::vector<std::string>& known) {
  const std::vector<std::string> near = NearNames(name, known);
  std::string text;
  for (size_t i = 0; i < near.size(); ++i) {
    text += StrCat(i == 0 ? " (did you mean '" : i + 1 < near.size() ? "', '" : "' or '", near[i]);
  }
  return near.empty() ? "" : text + "'?)";
}

Utf8Start ReadUtf8(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xc2 || lead > 0xf4) return {1, false, false};
  const size_t width = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  uint8_t low = 0x80, high = 0xbf;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  for (size_t i = 1; i < width; ++i) {
    if (i == bytes.size()) return {i, false, true};
    if (byte(i) < low || byte(i) > high) return {i, false, false};
    low = 0x80;
    high = 0xbf;
  }
  return {width, true, false};
}

size_t FindInvalidUtf8(std::string_view text) {
  constexpr uint64_t kNotAscii = 0x8080808080808080;
  for (size_t i = 0; i < text.size();) {
    uint64_t word = kNotAscii;
    if (text.size() - i >= sizeof(word)) std::memcpy(&word, text.data() + i, sizeof(word));
    if ((word & kNotAscii) == 0) {
      i += sizeof(word);
      continue;
    }
    const Utf8Start start = ReadUtf8(text.substr(i));
    if (!start.complete) return i;
    i += start.width;
  }
  return std::string_view::npos;
}

std::string RepairUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (true) {
    const size_t bad = FindInvalidUtf8(text);
    out.append(text.substr(0, bad));
    if (bad == std::string_view::npos) return out;
    AppendUtf8(out, 0xfffd);
    text.remove_prefix(bad);
    text.remove_prefix(ReadUtf8(text).width);
  }
}

void AppendUtf8(std::string& out, char32_t code_point) {
  if (code_point > 0x10ffff || (code_point >= 0xd800 && code_point <= 0xdfff)) code_point = 0xfffd;
  const uint32_t c = code_point;
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3f));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

std::string Quoted(std::string_view text, size_t limit) {
  std::string out = "'";
  const std::string_view shown = text.substr(0, std::min(limit, text.size()));
  for (const char raw : shown) {
    const auto c = static_cast<uint8_t>(raw);
    if (c == '\n') {
      out += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      char buffer[8];
      std::snprintf(buffer, sizeof(buffer), "\\x%02x", c);
      out += buffer;
    } else {
      out += raw;
    }
  }
  out += shown.size() < text.size() ? "...'" : "'";
  return RepairUtf8(out);
}

}  // namespace kvgauge
