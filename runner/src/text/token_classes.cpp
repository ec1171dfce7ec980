// SPDX-License-Identifier: Apache-2.0
#include "runner/token_classes.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "runner/tokenizer.h"

namespace kvgauge {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD, of ill-formed UTF-8

// The next code point of well-formed UTF-8; takes it off `text`.
char32_t TakeCodePoint(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  char32_t point = size == 1 ? first : first & (0xFFu >> (size + 1));
  for (size_t i = 1; i < std::min(size, text.size()); ++i) {
    point = point << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  }
  text.remove_prefix(std::min(size, text.size()));
  return point;
}

bool IsSpace(char32_t c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || c == 0xA0 || c == 0x3000 || c == 0x2581;
}

bool IsSeparator(char32_t c) {
  constexpr std::u32string_view kMarks = U".,?!;:\u3002\uFF0C\u3001\uFF1F\uFF01\uFF1B\uFF1A";
  return kMarks.find(c) != std::u32string_view::npos;
}

bool IsPunctuation(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  constexpr std::array kRanges = {
      Range{'!', '/'},       Range{':', '@'},       Range{'[', '`'},       Range{'{', '~'},
      Range{0xA1, 0xA1},     Range{0xAB, 0xAB},     Range{0xB7, 0xB7},     Range{0xBB, 0xBB},
      Range{0xBF, 0xBF},     Range{0x2010, 0x2027}, Range{0x2030, 0x205E}, Range{0x3001, 0x3003},
      Range{0x3008, 0x3011}, Range{0x3014, 0x301F}, Range{0xFF01, 0xFF0F}, Range{0xFF1A, 0xFF20},
      Range{0xFF3B, 0xFF3D}, Range{0xFF5B, 0xFF65}};
  return std::any_of(kRanges.begin(), kRanges.end(),
                     [c](const Range& range) { return c >= range.first && c <= range.last; });
}

}  // namespace

std::shared_ptr<const TokenClasses> ClassifyTokens(const Tokenizer& tokenizer) {
  const int64_t size = tokenizer.VocabSize();
  auto classes = std::make_shared<TokenClasses>(size);
  for (int32_t id = 0; id < size; ++id) {
    if (tokenizer.IsSpecial(id)) {
      classes->Set(id, TokenClass::kSpecial);
      continue;
    }
    const std::string text = tokenizer.Decode({&id, 1}, false);
    if (text.find(kReplacement) != std::string::npos) continue;  // a part of a character
    // A token that is the space before a word may decode to nothing when it comes first.
    bool separates = !text.empty(), marks = false, only_marks = true;
    for (std::string_view left = text; !left.empty();) {
      const char32_t c = TakeCodePoint(left);
      if (IsSpace(c)) continue;
      separates &= IsSeparator(c);
      marks = true;
      only_marks &= IsPunctuation(c);
    }
    if (separates) classes->Set(id, TokenClass::kSeparator);
    if (marks && only_marks) classes->Set(id, TokenClass::kPunctuation);
  }
  return classes;
}

TextSpeller SpellerOf(std::shared_ptr<const Tokenizer> tokenizer) {
  return [tokenizer = std::move(tokenizer)](std::span<const int32_t> ids) {
    return tokenizer->Spell(ids);
  };
}

TextEncoder EncoderOf(std::shared_ptr<const Tokenizer> tokenizer) {
  return [tokenizer = std::move(tokenizer)](std::string_view text) {
    return tokenizer->Encode(text, {.add_special = false});
  };
}

}  // namespace kvgauge
