// SPDX-License-Identifier: Apache-2.0
// Matchers written out for the split patterns of the common families. Each follows its pattern's
// alternatives in order; a test holds all of them against the regex engine.
#include "src/text/tokenizer/split.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge {
namespace {

constexpr std::string_view kPatternTexts[] = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

bool IsLineEnd(char32_t c) { return c == '\r' || c == '\n'; }
bool IsAsciiLetter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsAsciiPunctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), classes_(CharClasses()) {}

  size_t size() const { return text_.size(); }
  // Code point 0 past the end: no pattern gives NUL a meaning that differs from "other".
  CodePoint At(size_t at) const {
    return at < text_.size() ? CodePointAt(text_, at) : CodePoint{0, 0};
  }
  bool Is(size_t at, uint8_t classes) const {
    return at < text_.size() && (classes_[CodePointAt(text_, at).value] & classes) != 0;
  }
  bool IsNot(size_t at, uint8_t classes) const {
    return at < text_.size() && (classes_[CodePointAt(text_, at).value] & classes) == 0;
  }
  // End of the run of characters with (or without) one of the classes.
  size_t RunOf(size_t at, uint8_t classes) const {
    while (at < text_.size()) {
      const CodePoint c = CodePointAt(text_, at);
      if ((classes_[c.value] & classes) == 0) break;
      at += c.width;
    }
    return at;
  }
  size_t RunWithout(size_t at, uint8_t classes) const {
    while (at < text_.size()) {
      const CodePoint c = CodePointAt(text_, at);
      if ((classes_[c.value] & classes) != 0) break;
      at += c.width;
    }
    return at;
  }
  size_t LineEnds(size_t at) const {
    while (at < text_.size() && IsLineEnd(static_cast<uint8_t>(text_[at]))) ++at;
    return at;
  }

  // 's 't 're 've 'm 'll 'd: end of the match, or `at`.
  size_t Contraction(size_t at, bool any_case) const {
    if (text_[at] != '\'') return at;
    const auto fold = [&](char32_t c) -> char32_t {
      if (!any_case) return c;
      if (c == 0x17f) return 's';  // the long s folds to s
      return c >= 'A' && c <= 'Z' ? c + 32 : c;
    };
    const CodePoint first = At(at + 1);
    const char32_t a = fold(first.value);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 1 + first.width;
    const CodePoint second = At(at + 1 + first.width);
    const char32_t b = fold(second.value);
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) {
      return at + 1 + first.width + second.width;
    }
    return at;
  }

  // \s+(?!\S)|\s+ at a space: a run gives its last character to the word behind it.
  size_t Blank(size_t at) const {
    const size_t end = RunOf(at, kSpace);
    if (end == text_.size()) return end;
    const size_t last = end - CodePointBefore(text_, end).width;
    return last > at ? last : end;
  }
  // \s*[\r\n]+ before those two.
  size_t LinesOrBlank(size_t at) const {
    const size_t end = RunOf(at, kSpace);
    for (size_t i = end; i > at; --i) {
      if (IsLineEnd(static_cast<uint8_t>(text_[i - 1]))) return i;
    }
    return Blank(at);
  }

 private:
  std::string_view text_;
  const uint8_t* classes_;
};

size_t NextGpt2(const Scanner& s, size_t at) {
  if (const size_t end = s.Contraction(at, false); end > at) return end;
  const CodePoint c = s.At(at);
  const size_t word = c.value == ' ' ? at + 1 : at;
  if (s.Is(word, kLetter)) return s.RunOf(word, kLetter);
  if (s.Is(word, kNumber)) return s.RunOf(word, kNumber);
  if (s.IsNot(word, kLetter | kNumber | kSpace)) {
    return s.RunWithout(word, kLetter | kNumber | kSpace);
  }
  return s.Blank(at);
}

size_t NextLlama3(const Scanner& s, size_t at, int max_digits) {
  if (const size_t end = s.Contraction(at, true); end > at) return end;
  const CodePoint c = s.At(at);
  if (s.Is(at, kLetter)) return s.RunOf(at, kLetter);
  if (s.Is(at, kNumber)) {
    size_t end = at + c.width;
    for (int i = 1; i < max_digits && s.Is(end, kNumber); ++i) end += s.At(end).width;
    return end;
  }
  if (!IsLineEnd(c.value) && s.Is(at + c.width, kLetter)) return s.RunOf(at + c.width, kLetter);
  const size_t mark = c.value == ' ' ? at + 1 : at;
  if (s.IsNot(mark, kLetter | kNumber | kSpace)) {
    return s.LineEnds(s.RunWithout(mark, kLetter | kNumber | kSpace));
  }
  return s.LinesOrBlank(at);
}

// Returns `at` where nothing matches (digits, controls).
size_t NextDeepSeekV3(const Scanner& s, size_t at) {
  const CodePoint c = s.At(at);
  if (IsAsciiPunctuation(c.value) && IsAsciiLetter(s.At(at + 1).value)) {
    size_t end = at + 2;
    while (IsAsciiLetter(s.At(end).value)) ++end;
    return end;
  }
  if (!IsLineEnd(c.value) && s.IsNot(at, kLetter | kPunctuation | kSymbol) &&
      s.Is(at + c.width, kLetter | kMark)) {
    return s.RunOf(at + c.width, kLetter | kMark);
  }
  if (s.Is(at, kLetter | kMark)) return s.RunOf(at, kLetter | kMark);
  const size_t mark = c.value == ' ' ? at + 1 : at;
  if (s.Is(mark, kPunctuation | kSymbol)) {
    return s.LineEnds(s.RunOf(mark, kPunctuation | kSymbol));
  }
  if (s.Is(at, kSpace)) return s.LinesOrBlank(at);
  return at;
}

}  // namespace

std::string_view TextOf(HotPattern pattern) { return kPatternTexts[static_cast<size_t>(pattern)]; }

std::optional<HotPattern> FindHotPattern(std::string_view pattern) {
  for (const HotPattern hot :
       {HotPattern::kGpt2, HotPattern::kLlama3, HotPattern::kQwen2, HotPattern::kDeepSeekV3}) {
    if (TextOf(hot) == pattern) return hot;
  }
  return std::nullopt;
}

void FindAllHot(HotPattern pattern, std::string_view text, std::vector<Span>& out) {
  out.clear();
  const Scanner scanner(text);
  const auto scan = [&](auto next) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = next(at);
      if (end > at) {
        out.push_back({at, end});
        at = end;
      } else {
        at += Utf8Width(text[at]);
      }
    }
  };
  switch (pattern) {
    case HotPattern::kGpt2:
      scan([&](size_t at) { return NextGpt2(scanner, at); });
      break;
    case HotPattern::kLlama3:
      scan([&](size_t at) { return NextLlama3(scanner, at, 3); });
      break;
    case HotPattern::kQwen2:
      scan([&](size_t at) { return NextLlama3(scanner, at, 1); });
      break;
    case HotPattern::kDeepSeekV3:
      scan([&](size_t at) { return NextDeepSeekV3(scanner, at); });
      break;
  }
}

}  // namespace kvgauge
