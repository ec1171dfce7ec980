// SPDX-License-Identifier: Apache-2.0
#include "metrics/nltk_text.h"

#include <utf8proc.h>

#include <array>

#include "core/files.h"
#include "core/strings.h"

namespace kvgauge::metrics::nltk {
namespace {

struct Range {
  char32_t first, last;
};

template <size_t N>
bool Holds(const std::array<Range, N>& ranges, char32_t c) {
  return std::ranges::any_of(ranges, [c](Range r) { return c >= r.first && c <= r.last; });
}

// Unicode's Other_Uppercase. The squared and circled letters are letters for `regex` as well.
constexpr std::array<Range, 5> kOtherUpper = {{{0x2160, 0x216F},
                                               {0x24B6, 0x24CF},
                                               {0x1F130, 0x1F149},
                                               {0x1F150, 0x1F169},
                                               {0x1F170, 0x1F189}}};

// Other_Lowercase.
constexpr std::array<Range, 24> kOtherLower = {
    {{0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},
     {0x2E0, 0x2E4},     {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},
     {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
     {0x2090, 0x209C},   {0x2170, 0x217F},   {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},
     {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},   {0xAB5C, 0xAB5F},
     {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}}};

// Digits that are not decimal.
constexpr std::array<Range, 20> kOtherDigits = {
    {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
     {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
     {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
     {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
     {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}}};

utf8proc_category_t CategoryOf(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

bool IsUpper(char32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_LU || Holds(kOtherUpper, c); }

bool IsLower(char32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_LL || Holds(kOtherLower, c); }

bool IsDigitLike(char32_t c) { return IsDigit(c) || Holds(kOtherDigits, c); }

bool IsRegexSpace(char32_t c) { return IsSpace(c) && !(c >= 0x1C && c <= 0x1F); }

bool IsRegexWord(char32_t c) {
  if (IsLetter(c) || IsDigit(c) || c == 0x200C || c == 0x200D) return true;
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  return Holds(kOtherUpper, c) || (c >= 0x24D0 && c <= 0x24E9);
}

Result<std::string> ReadData(const std::string& path, Sha256& digest) {
  KVG_ASSIGN(std::string text, ReadFile(path));
  if (const size_t at = FindInvalidUtf8(text); at != std::string_view::npos) {
    return BadInput(StrCat(path, ": byte ", at, " is not UTF-8, as NLTK's data are"));
  }
  const std::string size = StrCat(text.size(), " ");  // a line that moves to another file counts
  digest.Update(size.data(), size.size());
  digest.Update(text.data(), text.size());
  return text;
}

}  // namespace kvgauge::metrics::nltk
