// SPDX-License-Identifier: Apache-2.0
#include "src/html/visible.h"

#include <algorithm>
#include <array>

#include "core/strings.h"

namespace kvgauge::report {
namespace {

struct Range {
  char32_t first, last;
};

// Characters without a picture of their own that change how others are shown.
constexpr Range kInvisible[] = {
    {0x0080, 0x009F},    // C1 controls
    {0x00AD, 0x00AD},    // soft hyphen
    {0x061C, 0x061C},    // Arabic letter mark
    {0x115F, 0x1160},    // Hangul fillers
    {0x180E, 0x180E},    // Mongolian vowel separator
    {0x200B, 0x200B},    // zero width space; U+200C and U+200D belong to scripts and emoji
    {0x200E, 0x200F},    // left-to-right and right-to-left marks
    {0x2028, 0x202E},    // separators, bidirectional embeddings and overrides
    {0x2060, 0x206F},    // word joiner, invisible operators, isolates
    {0x3164, 0x3164},    // Hangul filler
    {0xFDD0, 0xFDEF},    // no characters
    {0xFEFF, 0xFEFF},    // byte order mark
    {0xFFF0, 0xFFFB},    // annotations
    {0xFFFE, 0xFFFF},    // no characters
    {0x1D173, 0x1D17A},  // musical controls
    {0xE0000, 0xE0FFF},  // tags
};

bool IsInvisible(char32_t c) {
  if ((c & 0xFFFE) == 0xFFFE) return true;
  return std::any_of(std::begin(kInvisible), std::end(kInvisible),
                     [c](const Range& range) { return c >= range.first && c <= range.last; });
}

// Precondition: well-formed at `i`, a lead byte of two or more.
char32_t Decode(std::string_view text, size_t i, size_t& length) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[i + k]); };
  length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  char32_t c = byte(0) & (0xFF >> (length + 1));
  for (size_t k = 1; k < length; ++k) c = (c << 6) | (byte(k) & 0x3F);
  return c;
}

void AppendName(std::string& out, char32_t c) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string digits;
  for (; c > 0 || digits.size() < 4; c >>= 4) digits.insert(digits.begin(), kHex[c & 15]);
  out.append("⟨U+").append(digits).append("⟩");
}

}  // namespace

std::string MakeVisible(std::string_view text) {
  std::string repaired;
  if (FindInvalidUtf8(text) != std::string_view::npos) {
    repaired = RepairUtf8(text);
    text = repaired;
  }
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
        AppendUtf8(out, byte == 0x7F ? 0x2421 : 0x2400 + byte);
      } else {
        out.push_back(text[i]);
      }
      ++i;
      continue;
    }
    size_t length = 0;
    const char32_t c = Decode(text, i, length);
    if (IsInvisible(c)) {
      AppendName(out, c);
    } else {
      out.append(text.substr(i, length));
    }
    i += length;
  }
  return out;
}

std::string MakeVisible(std::string_view text, size_t limit, size_t& left_out) {
  size_t end = text.size();
  if (end > limit) {
    end = limit;
    // Back to the beginning of a character; no further than one can be long.
    for (int k = 0; k < 3 && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80;
         ++k) {
      --end;
    }
  }
  left_out = text.size() - end;
  return MakeVisible(text.substr(0, end));
}

}  // namespace kvgauge::report
