// SPDX-License-Identifier: Apache-2.0
// Upper and lower case as Python has them: one character may become several.
#include <utf8proc.h>

#include <algorithm>

#include "core/strings.h"
#include "src/text/jinja/functions.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge::jinja {
namespace {

struct LongCase {
  char32_t code;
  std::string_view upper, title;
};

// Unicode's SpecialCasing, the entries that hold always.
constexpr LongCase kLongCases[] = {
    {0x00df, "SS", "Ss"},
    {0x0149, "\u02bcN", "\u02bcN"},
    {0x01f0, "J\u030c", "J\u030c"},
    {0x0390, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {0x03b0, "\u03a5\u0308\u0301", "\u03a5\u0308\u0301"},
    {0x0587, "\u0535\u0552", "\u0535\u0582"},
    {0x1e96, "H\u0331", "H\u0331"},
    {0x1e97, "T\u0308", "T\u0308"},
    {0x1e98, "W\u030a", "W\u030a"},
    {0x1e99, "Y\u030a", "Y\u030a"},
    {0x1e9a, "A\u02be", "A\u02be"},
    {0x1f50, "\u03a5\u0313", "\u03a5\u0313"},
    {0x1f52, "\u03a5\u0313\u0300", "\u03a5\u0313\u0300"},
    {0x1f54, "\u03a5\u0313\u0301", "\u03a5\u0313\u0301"},
    {0x1f56, "\u03a5\u0313\u0342", "\u03a5\u0313\u0342"},
    {0x1f80, "\u1f08\u0399", "\u1f88"},
    {0x1f81, "\u1f09\u0399", "\u1f89"},
    {0x1f82, "\u1f0a\u0399", "\u1f8a"},
    {0x1f83, "\u1f0b\u0399", "\u1f8b"},
    {0x1f84, "\u1f0c\u0399", "\u1f8c"},
    {0x1f85, "\u1f0d\u0399", "\u1f8d"},
    {0x1f86, "\u1f0e\u0399", "\u1f8e"},
    {0x1f87, "\u1f0f\u0399", "\u1f8f"},
    {0x1f88, "\u1f08\u0399", "\u1f88"},
    {0x1f89, "\u1f09\u0399", "\u1f89"},
    {0x1f8a, "\u1f0a\u0399", "\u1f8a"},
    {0x1f8b, "\u1f0b\u0399", "\u1f8b"},
    {0x1f8c, "\u1f0c\u0399", "\u1f8c"},
    {0x1f8d, "\u1f0d\u0399", "\u1f8d"},
    {0x1f8e, "\u1f0e\u0399", "\u1f8e"},
    {0x1f8f, "\u1f0f\u0399", "\u1f8f"},
    {0x1f90, "\u1f28\u0399", "\u1f98"},
    {0x1f91, "\u1f29\u0399", "\u1f99"},
    {0x1f92, "\u1f2a\u0399", "\u1f9a"},
    {0x1f93, "\u1f2b\u0399", "\u1f9b"},
    {0x1f94, "\u1f2c\u0399", "\u1f9c"},
    {0x1f95, "\u1f2d\u0399", "\u1f9d"},
    {0x1f96, "\u1f2e\u0399", "\u1f9e"},
    {0x1f97, "\u1f2f\u0399", "\u1f9f"},
    {0x1f98, "\u1f28\u0399", "\u1f98"},
    {0x1f99, "\u1f29\u0399", "\u1f99"},
    {0x1f9a, "\u1f2a\u0399", "\u1f9a"},
    {0x1f9b, "\u1f2b\u0399", "\u1f9b"},
    {0x1f9c, "\u1f2c\u0399", "\u1f9c"},
    {0x1f9d, "\u1f2d\u0399", "\u1f9d"},
    {0x1f9e, "\u1f2e\u0399", "\u1f9e"},
    {0x1f9f, "\u1f2f\u0399", "\u1f9f"},
    {0x1fa0, "\u1f68\u0399", "\u1fa8"},
    {0x1fa1, "\u1f69\u0399", "\u1fa9"},
    {0x1fa2, "\u1f6a\u0399", "\u1faa"},
    {0x1fa3, "\u1f6b\u0399", "\u1fab"},
    {0x1fa4, "\u1f6c\u0399", "\u1fac"},
    {0x1fa5, "\u1f6d\u0399", "\u1fad"},
    {0x1fa6, "\u1f6e\u0399", "\u1fae"},
    {0x1fa7, "\u1f6f\u0399", "\u1faf"},
    {0x1fa8, "\u1f68\u0399", "\u1fa8"},
    {0x1fa9, "\u1f69\u0399", "\u1fa9"},
    {0x1faa, "\u1f6a\u0399", "\u1faa"},
    {0x1fab, "\u1f6b\u0399", "\u1fab"},
    {0x1fac, "\u1f6c\u0399", "\u1fac"},
    {0x1fad, "\u1f6d\u0399", "\u1fad"},
    {0x1fae, "\u1f6e\u0399", "\u1fae"},
    {0x1faf, "\u1f6f\u0399", "\u1faf"},
    {0x1fb2, "\u1fba\u0399", "\u1fba\u0345"},
    {0x1fb3, "\u0391\u0399", "\u1fbc"},
    {0x1fb4, "\u0386\u0399", "\u0386\u0345"},
    {0x1fb6, "\u0391\u0342", "\u0391\u0342"},
    {0x1fb7, "\u0391\u0342\u0399", "\u0391\u0342\u0345"},
    {0x1fbc, "\u0391\u0399", "\u1fbc"},
    {0x1fc2, "\u1fca\u0399", "\u1fca\u0345"},
    {0x1fc3, "\u0397\u0399", "\u1fcc"},
    {0x1fc4, "\u0389\u0399", "\u0389\u0345"},
    {0x1fc6, "\u0397\u0342", "\u0397\u0342"},
    {0x1fc7, "\u0397\u0342\u0399", "\u0397\u0342\u0345"},
    {0x1fcc, "\u0397\u0399", "\u1fcc"},
    {0x1fd2, "\u0399\u0308\u0300", "\u0399\u0308\u0300"},
    {0x1fd3, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {0x1fd6, "\u0399\u0342", "\u0399\u0342"},
    {0x1fd7, "\u0399\u0308\u0342", "\u0399\u0308\u0342"},
    {0x1fe2, "\u03a5\u0308\u0300", "\u03a5\u0308\u0300"},
    {0x1fe3, "\u03a5\u0308\u0301", "\u03a5\u0308\u0301"},
    {0x1fe4, "\u03a1\u0313", "\u03a1\u0313"},
    {0x1fe6, "\u03a5\u0342", "\u03a5\u0342"},
    {0x1fe7, "\u03a5\u0308\u0342", "\u03a5\u0308\u0342"},
    {0x1ff2, "\u1ffa\u0399", "\u1ffa\u0345"},
    {0x1ff3, "\u03a9\u0399", "\u1ffc"},
    {0x1ff4, "\u038f\u0399", "\u038f\u0345"},
    {0x1ff6, "\u03a9\u0342", "\u03a9\u0342"},
    {0x1ff7, "\u03a9\u0342\u0399", "\u03a9\u0342\u0345"},
    {0x1ffc, "\u03a9\u0399", "\u1ffc"},
    {0xfb00, "FF", "Ff"},
    {0xfb01, "FI", "Fi"},
    {0xfb02, "FL", "Fl"},
    {0xfb03, "FFI", "Ffi"},
    {0xfb04, "FFL", "Ffl"},
    {0xfb05, "ST", "St"},
    {0xfb06, "ST", "St"},
    {0xfb13, "\u0544\u0546", "\u0544\u0576"},
    {0xfb14, "\u0544\u0535", "\u0544\u0565"},
    {0xfb15, "\u0544\u053b", "\u0544\u056b"},
    {0xfb16, "\u054e\u0546", "\u054e\u0576"},
    {0xfb17, "\u0544\u053d", "\u0544\u056d"},
};

const LongCase* FindLongCase(char32_t code) {
  if (code < 0xdf) return nullptr;
  const auto* const found =
      std::lower_bound(std::begin(kLongCases), std::end(kLongCases), code,
                       [](const LongCase& entry, char32_t wanted) { return entry.code < wanted; });
  return found != std::end(kLongCases) && found->code == code ? found : nullptr;
}

bool Cased(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
      return true;
    default:
      return false;
  }
}

bool CaseIgnorable(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return code == '\'' || code == '.' || code == ':' || code == 0xb7 || code == 0x2019;
  }
}

// A capital sigma at the end of a word is written otherwise.
bool FinalSigma(std::string_view text, size_t at, size_t end) {
  size_t before = at;
  bool cased = false;
  while (before > 0) {
    const CodePoint c = CodePointBefore(text, before);
    before -= c.width;
    if (CaseIgnorable(c.value)) continue;
    cased = Cased(c.value);
    break;
  }
  if (!cased) return false;
  while (end < text.size()) {
    const CodePoint c = CodePointAt(text, end);
    end += c.width;
    if (!CaseIgnorable(c.value)) return !Cased(c.value);
  }
  return true;
}

void AppendUpper(char32_t code, TextBuilder& out, bool title) {
  std::string character;
  if (const LongCase* entry = FindLongCase(code)) {
    out.Add(title ? entry->title : entry->upper);
    return;
  }
  const auto plain = static_cast<utf8proc_int32_t>(code);
  AppendUtf8(character,
             static_cast<char32_t>(title ? utf8proc_totitle(plain) : utf8proc_toupper(plain)));
  out.Add(character);
}

void AppendLower(std::string_view text, size_t at, CodePoint c, TextBuilder& out) {
  if (c.value == 0x130) return out.Add("i\u0307");
  if (c.value == 0x3a3) return out.Add(FinalSigma(text, at, at + c.width) ? "\u03c2" : "\u03c3");
  std::string character;
  AppendUtf8(character,
             static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value))));
  out.Add(character);
}

}  // namespace

std::string Upper(std::string_view text) {
  TextBuilder out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    AppendUpper(c.value, out, false);
    at += c.width;
  }
  return out.Take();
}

std::string Lower(std::string_view text) {
  TextBuilder out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    AppendLower(text, at, c, out);
    at += c.width;
  }
  return out.Take();
}

std::string Capitalized(std::string_view text) {
  TextBuilder out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    if (at == 0) {
      AppendUpper(c.value, out, true);
    } else {
      AppendLower(text, at, c, out);
    }
    at += c.width;
  }
  return out.Take();
}

std::string Titled(std::string_view text) {
  TextBuilder out;
  bool within = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    if (within) {
      AppendLower(text, at, c, out);
    } else {
      AppendUpper(c.value, out, true);
    }
    within = Cased(c.value);
    at += c.width;
  }
  return out.Take();
}

std::string Swapped(std::string_view text) {
  TextBuilder out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c.value));
    if (category == UTF8PROC_CATEGORY_LU) {
      AppendLower(text, at, c, out);
    } else if (category == UTF8PROC_CATEGORY_LL) {
      AppendUpper(c.value, out, false);
    } else {
      out.Add(text.substr(at, c.width));
    }
    at += c.width;
  }
  return out.Take();
}

bool IsCased(std::string_view text, bool upper) {
  bool any = false;
  Meter::Step(std::ssize(text) / 64);
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c.value));
    const auto wrong = upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU;
    if (category == wrong || category == UTF8PROC_CATEGORY_LT) return false;
    any = any || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LU;
    at += c.width;
  }
  return any;
}

}  // namespace kvgauge::jinja
