// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/bert_normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "src/text/tokenizer/json_fields.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge {
namespace {

struct CodePointRange {
  char32_t first, last;
};

template <size_t N>
bool IsIn(const CodePointRange (&ranges)[N], char32_t c) {
  const auto* above = std::upper_bound(
      std::begin(ranges), std::end(ranges), c,
      [](char32_t value, const CodePointRange& range) { return value < range.first; });
  return above != std::begin(ranges) && c <= (above - 1)->last;
}

// NUL, U+FFFD, and of Unicode 8.0 control characters that are no white space, formats and private
// use.
bool IsRemoved(char32_t c) {
  constexpr CodePointRange kRemoved[] = {
      {0x0, 0x8},          {0xb, 0xc},         {0xe, 0x1f},        {0x7f, 0x9f},
      {0xad, 0xad},        {0x600, 0x605},     {0x61c, 0x61c},     {0x6dd, 0x6dd},
      {0x70f, 0x70f},      {0x180e, 0x180e},   {0x200b, 0x200f},   {0x202a, 0x202e},
      {0x2060, 0x2064},    {0x2066, 0x206f},   {0xe000, 0xf8ff},   {0xfeff, 0xfeff},
      {0xfff9, 0xfffb},    {0xfffd, 0xfffd},   {0x110bd, 0x110bd}, {0x1bca0, 0x1bca3},
      {0x1d173, 0x1d17a},  {0xe0001, 0xe0001}, {0xe0020, 0xe007f}, {0xf0000, 0xffffd},
      {0x100000, 0x10fffd}};
  return IsIn(kRemoved, c);
}

// CJK ideographs, with the slip of the library in the sixth range.
bool IsChinese(char32_t c) {
  constexpr CodePointRange kChinese[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                         {0x20000, 0x2a6df}, {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf},
                                         {0x2f800, 0x2fa1f}};
  return IsIn(kChinese, c);
}

// Nonspacing marks of Unicode 8.0. The system's tables are newer: what is not in 9.0 or came with
// it is no mark here, nor is what became one since, and one is none any more.
bool IsAccent(char32_t c) {
  constexpr CodePointRange kLater[] = {{0x8d4, 0x8e1},     {0x1885, 0x1886},   {0x1dfb, 0x1dfb},
                                       {0xa8c5, 0xa8c5},   {0xa9bd, 0xa9bd},   {0x111c9, 0x111c9},
                                       {0x1123e, 0x1123e}, {0x11438, 0x11446}, {0x11c30, 0x11c3f},
                                       {0x11c92, 0x11cb6}, {0x1e000, 0x1e02a}, {0x1e944, 0x1e94a}};
  if (c == 0x1734) return true;
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_MN &&
         !HasClass(c, kNewerThan9) && !IsIn(kLater, c);
}

template <class Visit>
void EachCharacter(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    visit(c.value, text.substr(at, c.width));
    at += c.width;
  }
}

class BertNormalizer final : public NormalizerStep {
 public:
  struct Rules {
    bool clean = true, part_chinese = true, strip_accents = false, lower = true;
  };
  explicit BertNormalizer(const Rules& rules, std::unique_ptr<NormalizerStep> decompose)
      : rules_(rules), decompose_(std::move(decompose)) {}

  Status Apply(std::string& text) const override {
    if (rules_.clean) Clean(text);
    if (rules_.part_chinese) PartChinese(text);
    if (rules_.strip_accents) KVG_TRY(StripAccents(text));
    if (rules_.lower) Lower(text);
    return {};
  }

 private:
  static void Clean(std::string& text) {
    std::string out;
    out.reserve(text.size());
    EachCharacter(text, [&](char32_t c, std::string_view bytes) {
      const bool blank = HasClass(c, kSpace) && c != 0xb && c != 0xc && c != 0x85;
      if (blank) {
        out += ' ';
      } else if (!IsRemoved(c)) {
        out += bytes;
      }
    });
    text = std::move(out);
  }

  static void PartChinese(std::string& text) {
    std::string out;
    out.reserve(text.size());
    EachCharacter(text, [&](char32_t c, std::string_view bytes) {
      const bool parted = IsChinese(c);
      if (parted) out += ' ';
      out += bytes;
      if (parted) out += ' ';
    });
    text = std::move(out);
  }

  Status StripAccents(std::string& text) const {
    KVG_TRY(decompose_->Apply(text));
    std::string out;
    out.reserve(text.size());
    EachCharacter(text, [&](char32_t c, std::string_view bytes) {
      if (!IsAccent(c)) out += bytes;
    });
    text = std::move(out);
    return {};
  }

  static void Lower(std::string& text) {
    std::string out;
    out.reserve(text.size());
    EachCharacter(text, [&](char32_t c, std::string_view) {
      // The one character that becomes two.
      if (c == 0x130) {
        out += "i\u0307";
        return;
      }
      AppendUtf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    });
    text = std::move(out);
  }

  Rules rules_;
  std::unique_ptr<NormalizerStep> decompose_;  // NFD
};

}  // namespace

Result<std::unique_ptr<NormalizerStep>> ParseBertNormalizer(const Json& json,
                                                            const std::string& where) {
  BertNormalizer::Rules rules;
  KVG_ASSIGN(rules.clean, BoolField(json, "clean_text", true, where));
  KVG_ASSIGN(rules.part_chinese, BoolField(json, "handle_chinese_chars", true, where));
  KVG_ASSIGN(rules.lower, BoolField(json, "lowercase", true, where));
  KVG_ASSIGN(rules.strip_accents, BoolField(json, "strip_accents", rules.lower, where));
  return std::unique_ptr<NormalizerStep>(
      std::make_unique<BertNormalizer>(rules, MakeUnicodeForm(false, false)));
}

}  // namespace kvgauge
