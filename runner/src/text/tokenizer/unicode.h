// SPDX-License-Identifier: Apache-2.0
// Character classes pinned to one Unicode version, and UTF-8 walks over well-formed text.
//
// The classes are those of Unicode 16.0, which Hugging Face tokenizers 0.22 splits by; system
// libraries differ from machine to machine, so none of them is asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvgauge {

// Stands for a space in SentencePiece's pieces.
inline constexpr std::string_view kSpaceMark = "\u2581";

enum CharClass : uint8_t {
  kLetter = 1,
  kNumber = 2,
  kPunctuation = 4,
  kSymbol = 8,
  kMark = 16,
  kSpace = 32,            // White_Space
  kNewerThan9 = 64,       // assigned after Unicode 9.0
  kOldPunctuation = 128,  // ASCII punctuation and symbols, and category P of Unicode 8.0
};

// Flags of every code point, 0x110000 of them. The table lives for ever.
const uint8_t* CharClasses();
inline bool HasClass(char32_t code_point, uint8_t classes) {
  return (CharClasses()[code_point] & classes) != 0;
}

// A stretch that the regex library's own, older tables do not know.
struct LaterRange {
  char category[2];  // 'L', 'o'
  char32_t first, last;
};
extern const LaterRange kLaterRanges[];
extern const size_t kLaterRangeCount;
extern const uint32_t kUnicodeRuns[];
extern const size_t kUnicodeRunCount;

// Bytes of the sequence that a lead byte begins.
inline size_t Utf8Width(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// The code point at text[at], and its width. Precondition: well-formed text, at < size.
struct CodePoint {
  char32_t value;
  size_t width;
};
inline CodePoint CodePointAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[i])); };
  const char32_t lead = byte(at);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xe0) return {(lead & 0x1f) << 6 | (byte(at + 1) & 0x3f), 2};
  if (lead < 0xf0) {
    return {(lead & 0x0f) << 12 | (byte(at + 1) & 0x3f) << 6 | (byte(at + 2) & 0x3f), 3};
  }
  return {(lead & 0x07) << 18 | (byte(at + 1) & 0x3f) << 12 | (byte(at + 2) & 0x3f) << 6 |
              (byte(at + 3) & 0x3f),
          4};
}
// The code point that ends at text[end - 1]. Precondition: well-formed text, end > 0.
inline CodePoint CodePointBefore(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while ((static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
  return CodePointAt(text, begin);
}

// Takes whole characters off the front of `bytes` and appends them to `out`, each ill-formed
// stretch (a maximal prefix of a character) as one U+FFFD. What could still become a character
// stays in `bytes`, unless `last`.
void TakeUtf8(std::string& bytes, bool last, std::string& out);

}  // namespace kvgauge
