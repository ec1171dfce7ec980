// SPDX-License-Identifier: Apache-2.0
// Methods of Python's str.
#include <utf8proc.h>

#include <algorithm>
#include <optional>

#include "core/strings.h"
#include "src/text/jinja/functions.h"
#include "src/text/jinja/lexer.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge::jinja {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

Value Same(const Value& self, std::string text) {
  return Value::Text(std::move(text), self.safe());
}

// --- Taking apart --------------------------------------------------------------------------------

std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator,
                                      int64_t most) {
  std::vector<std::string_view> parts;
  size_t from = 0;
  while (most < 0 || std::ssize(parts) < most) {
    const size_t at = Find(text, separator, from);
    if (at == kNowhere) break;
    parts.push_back(text.substr(from, at - from));
    from = at + separator.size();
  }
  parts.push_back(text.substr(from));
  return parts;
}

std::vector<std::string_view> SplitAtLast(std::string_view text, std::string_view separator,
                                          int64_t most) {
  std::vector<std::string_view> parts;
  while (most < 0 || std::ssize(parts) < most) {
    const size_t at = FindLast(text, separator);
    if (at == kNowhere) break;
    Meter::Step();
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

size_t SkipSpace(std::string_view text, size_t at, bool space) {
  while (at < text.size() && IsSpace(CodePointAt(text, at).value) == space) {
    at += CodePointAt(text, at).width;
  }
  return at;
}

std::vector<std::string_view> SplitAtSpace(std::string_view text, int64_t most) {
  std::vector<std::string_view> parts;
  for (size_t at = SkipSpace(text, 0, true); at < text.size(); at = SkipSpace(text, at, true)) {
    Meter::Step();
    if (most >= 0 && std::ssize(parts) >= most) {
      parts.push_back(text.substr(at));  // with the blanks at its end
      break;
    }
    const size_t end = SkipSpace(text, at, false);
    parts.push_back(text.substr(at, end - at));
    at = end;
  }
  return parts;
}

std::vector<std::string_view> SplitAtLastSpace(std::string_view text, int64_t most) {
  std::vector<std::string_view> parts;
  const auto take = [&](bool space) {
    size_t end = text.size();
    while (end > 0 && IsSpace(CodePointBefore(text, end).value) == space) {
      end -= CodePointBefore(text, end).width;
    }
    const std::string_view taken = text.substr(end);
    text = text.substr(0, end);
    return taken;
  };
  take(true);
  while (!text.empty()) {
    Meter::Step();
    if (most >= 0 && std::ssize(parts) >= most) {
      parts.push_back(text);  // with the blanks at its beginning
      break;
    }
    parts.push_back(take(false));
    take(true);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value Texts(const Value& self, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Same(self, std::string(part)));
  return Value::List(std::move(items));
}

Value SplitText(const Value& self, const Given& given, bool last) {
  const int64_t most = given.Int(1, -1);
  if (given[0] == nullptr || given[0]->none()) {
    return Texts(self, last ? SplitAtLastSpace(self.str(), most) : SplitAtSpace(self.str(), most));
  }
  const std::string& separator = given.Text(0);
  if (separator.empty()) FailRuntime("empty separator");
  return Texts(
      self, last ? SplitAtLast(self.str(), separator, most) : SplitAt(self.str(), separator, most));
}

Value Partition(const Value& self, const Given& given, bool last) {
  const std::string& text = self.str();
  const std::string& separator = given.Text(0);
  if (separator.empty()) FailRuntime("empty separator");
  const size_t at = last ? FindLast(text, separator) : Find(text, separator);
  const auto part = [&](std::string_view piece) { return Same(self, std::string(piece)); };
  if (at == kNowhere) {
    return last ? Value::Tuple({part(""), part(""), self})
                : Value::Tuple({self, part(""), part("")});
  }
  return Value::Tuple(
      {part(text.substr(0, at)), part(separator), part(text.substr(at + separator.size()))});
}

bool LineEnd(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

Value SplitLines(const Value& self, const Given& given) {
  const std::string& text = self.str();
  const bool keep = given.Flag(0, false);
  std::vector<std::string_view> lines;
  for (size_t from = 0; from < text.size();) {
    size_t at = from;
    while (at < text.size() && !LineEnd(CodePointAt(text, at).value)) {
      at += CodePointAt(text, at).width;
    }
    size_t end = at;
    if (at < text.size()) {
      end += CodePointAt(text, at).width;
      if (text[at] == '\r' && end < text.size() && text[end] == '\n') ++end;
    }
    Meter::Step();
    lines.push_back(std::string_view(text).substr(from, (keep ? end : at) - from));
    from = end;
  }
  return Texts(self, lines);
}

Value StripText(const Value& self, const Given& given, bool left, bool right) {
  const bool all = given[0] == nullptr || given[0]->none();
  return Same(self, Stripped(self.str(), all ? nullptr : &given.Text(0), left, right));
}

// --- Looking -------------------------------------------------------------------------------------

// The part that start and end leave, and where it begins in characters.
std::string_view Part(const Value& self, const Given& given, size_t first, int64_t& begin) {
  const int64_t size = CharacterCount(self);
  const auto bound = [&](size_t i, int64_t otherwise) {
    int64_t at = given.Int(i, otherwise);
    if (at < 0) at = at < -size ? 0 : at + size;
    return std::min(at, size);
  };
  begin = bound(first, 0);
  const int64_t end = bound(first + 1, size);
  return Characters(self, begin, end);
}

Value FindText(const Value& self, const Given& given, bool last, bool must) {
  int64_t begin = 0;
  const std::string_view part = Part(self, given, 1, begin);
  const std::string& wanted = given.Text(0);
  const size_t at = last ? FindLast(part, wanted) : Find(part, wanted);
  if (at == kNowhere) {
    if (must) FailRuntime("substring not found");
    return Value::Int(-1);
  }
  return Value::Int(begin + CharacterCount(Value::Text(std::string(part.substr(0, at)))));
}

Value CountText(const Value& self, const Given& given) {
  int64_t begin = 0;
  const std::string_view part = Part(self, given, 1, begin);
  const std::string& wanted = given.Text(0);
  if (wanted.empty()) return Value::Int(CharacterCount(Value::Text(std::string(part))) + 1);
  int64_t count = 0;
  for (size_t at = Find(part, wanted); at != kNowhere;
       at = Find(part, wanted, at + wanted.size())) {
    ++count;
  }
  return Value::Int(count);
}

Value Edge(const Value& self, const Given& given, bool front) {
  int64_t begin = 0;
  const std::string_view part = Part(self, given, 1, begin);
  const auto fits = [&](const Value& edge) {
    if (edge.undefined()) FailRuntime(UndefinedMessage(edge));
    if (!edge.text()) {
      FailRuntime(
          StrCat(given.who(), " first arg must be str or a tuple of str, not ", TypeName(edge)));
    }
    return front ? part.starts_with(edge.str()) : part.ends_with(edge.str());
  };
  const Value& edge = *given[0];
  if (!edge.Is(Kind::kTuple)) return Value::Bool(fits(edge));
  return Value::Bool(std::any_of(edge.items().begin(), edge.items().end(), fits));
}

template <class Fits>
Value AllCharacters(const Value& self, const Fits& fits) {
  const std::string& text = self.str();
  for (size_t at = 0; at < text.size(); at += CodePointAt(text, at).width) {
    if (!fits(CodePointAt(text, at).value)) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

bool Decimal(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}
// Superscripts and circled digits are digits for Python.
bool DigitLike(char32_t c) {
  return Decimal(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247c) ||
         (c >= 0x2488 && c <= 0x2490) || (c >= 0x24f5 && c <= 0x24fd) ||
         (c >= 0x2776 && c <= 0x277e) || (c >= 0x2780 && c <= 0x2788) ||
         (c >= 0x278a && c <= 0x2792);
}
bool Letter(char32_t c) { return HasClass(c, kLetter); }
bool Numeric(char32_t c) { return HasClass(c, kNumber); }

// --- Putting together ----------------------------------------------------------------------------

Value JoinTexts(const Value& self, const Given& given) {
  const Value items = Listed(*given[0]);
  TextBuilder out;
  for (size_t i = 0; i < items.items().size(); ++i) {
    const Value& item = items.items()[i];
    if (!item.text()) {
      FailRuntime(
          StrCat("sequence item ", i, ": expected str instance, ", TypeName(item), " found"));
    }
    if (i > 0) out.Add(self.str());
    out.Add(self.safe() ? Escaped(item) : item.str());
  }
  return Same(self, out.Take());
}

Value ReplaceText(const Value& self, const Given& given) {
  const std::string& with = self.safe() ? Escaped(*given[1]) : given.Text(1);
  return Same(self, Replaced(self.str(), given.Text(0), with, given.Int(2, -1)));
}

Value PadText(const Value& self, const Given& given, int left_share, int right_share) {
  const int64_t size = CharacterCount(self), width = given.Int(0, 0);
  const std::string fill = given[1] == nullptr ? " " : given.Text(1);
  if (fill.empty() || Utf8Width(fill[0]) != fill.size()) {
    FailRuntime("The fill character must be exactly one character long");
  }
  if (width <= size) return self;
  const int64_t pad = width - size;
  // Python's center puts the odd one to the left where the width is odd.
  int64_t left = left_share == 0 ? 0 : pad;
  if (left_share != 0 && right_share != 0) left = pad / 2 + (pad & width & 1);
  TextBuilder out;
  out.Repeat(fill, left);
  out.Add(self.str());
  out.Repeat(fill, pad - left);
  return Same(self, out.Take());
}

Value ZeroFill(const Value& self, const Given& given) {
  const std::string& text = self.str();
  const int64_t pad = given.Int(0, 0) - CharacterCount(self);
  const bool sign = text.starts_with('+') || text.starts_with('-');
  TextBuilder out;
  if (sign) out.Add(text[0]);
  out.Repeat("0", pad);
  out.Add(std::string_view(text).substr(sign ? 1 : 0));
  return Same(self, out.Take());
}

Value WithoutEdge(const Value& self, const Given& given, bool front) {
  std::string_view text = self.str();
  const std::string& edge = given.Text(0);
  if (front && text.starts_with(edge)) text.remove_prefix(edge.size());
  if (!front && text.ends_with(edge)) text.remove_suffix(edge.size());
  return Same(self, std::string(text));
}

#define KVG_METHOD(expr)                                        \
  [](Engine&, const Value& self, const Given& given) -> Value { \
    static_cast<void>(given);                                   \
    return expr;                                                \
  }

const MethodSpec kTextMethods[] = {
    {"strip", "chars?", KVG_METHOD(StripText(self, given, true, true))},
    {"lstrip", "chars?", KVG_METHOD(StripText(self, given, true, false))},
    {"rstrip", "chars?", KVG_METHOD(StripText(self, given, false, true))},
    {"split", "sep? maxsplit?", KVG_METHOD(SplitText(self, given, false))},
    {"rsplit", "sep? maxsplit?", KVG_METHOD(SplitText(self, given, true))},
    {"splitlines", "keepends?", KVG_METHOD(SplitLines(self, given))},
    {"partition", "sep", KVG_METHOD(Partition(self, given, false))},
    {"rpartition", "sep", KVG_METHOD(Partition(self, given, true))},
    {"startswith", "prefix start? end?", KVG_METHOD(Edge(self, given, true))},
    {"endswith", "suffix start? end?", KVG_METHOD(Edge(self, given, false))},
    {"replace", "old new count?", KVG_METHOD(ReplaceText(self, given))},
    {"join", "iterable", KVG_METHOD(JoinTexts(self, given))},
    {"upper", "", KVG_METHOD(Same(self, Upper(self.str())))},
    {"lower", "", KVG_METHOD(Same(self, Lower(self.str())))},
    {"title", "", KVG_METHOD(Same(self, Titled(self.str())))},
    {"capitalize", "", KVG_METHOD(Same(self, Capitalized(self.str())))},
    {"swapcase", "", KVG_METHOD(Same(self, Swapped(self.str())))},
    {"find", "sub start? end?", KVG_METHOD(FindText(self, given, false, false))},
    {"rfind", "sub start? end?", KVG_METHOD(FindText(self, given, true, false))},
    {"index", "sub start? end?", KVG_METHOD(FindText(self, given, false, true))},
    {"rindex", "sub start? end?", KVG_METHOD(FindText(self, given, true, true))},
    {"count", "sub start? end?", KVG_METHOD(CountText(self, given))},
    {"isdigit", "", KVG_METHOD(AllCharacters(self, DigitLike))},
    {"isdecimal", "", KVG_METHOD(AllCharacters(self, Decimal))},
    {"isnumeric", "", KVG_METHOD(AllCharacters(self, Numeric))},
    {"isalpha", "", KVG_METHOD(AllCharacters(self, Letter))},
    {"isalnum", "",
     KVG_METHOD(AllCharacters(self, [](char32_t c) { return Letter(c) || Numeric(c); }))},
    {"isspace", "", KVG_METHOD(AllCharacters(self, IsSpace))},
    {"isascii", "", KVG_METHOD(Value::Bool(CharacterCount(self) == std::ssize(self.str())))},
    {"isupper", "", KVG_METHOD(Value::Bool(IsCased(self.str(), true)))},
    {"islower", "", KVG_METHOD(Value::Bool(IsCased(self.str(), false)))},
    {"zfill", "width", KVG_METHOD(ZeroFill(self, given))},
    {"ljust", "width fillchar?", KVG_METHOD(PadText(self, given, 0, 1))},
    {"rjust", "width fillchar?", KVG_METHOD(PadText(self, given, 1, 0))},
    {"center", "width fillchar?", KVG_METHOD(PadText(self, given, 1, 1))},
    {"removeprefix", "prefix", KVG_METHOD(WithoutEdge(self, given, true))},
    {"removesuffix", "suffix", KVG_METHOD(WithoutEdge(self, given, false))},
    {"format", "*", KVG_METHOD(BraceFormat(self, given.all()))},
};

}  // namespace

std::span<const MethodSpec> TextMethods() { return kTextMethods; }

std::string Stripped(std::string_view text, const std::string* characters, bool left, bool right) {
  const auto goes = [&](std::string_view character) {
    if (characters == nullptr) return IsSpace(CodePointAt(character, 0).value);
    Meter::Step(std::ssize(*characters) / 64);
    return characters->find(character) != std::string::npos;
  };
  while (left && !text.empty() && goes(text.substr(0, Utf8Width(text[0])))) {
    text.remove_prefix(Utf8Width(text[0]));
  }
  while (right && !text.empty()) {
    const size_t width = CodePointBefore(text, text.size()).width;
    if (!goes(text.substr(text.size() - width))) break;
    text.remove_suffix(width);
  }
  return std::string(text);
}

std::string Replaced(std::string_view text, std::string_view old, std::string_view with,
                     int64_t count) {
  TextBuilder out;
  size_t from = 0;
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    if (old.empty()) {
      // Between all characters, and at both ends.
      if (done > 0 && from >= text.size()) break;
      if (done > 0) {
        const size_t width = Utf8Width(text[from]);
        out.Add(text.substr(from, width));
        from += width;
      }
      out.Add(with);
      Meter::Step();
      continue;
    }
    const size_t at = Find(text, old, from);
    if (at == std::string_view::npos) break;
    out.Add(text.substr(from, at - from));
    out.Add(with);
    from = at + old.size();
  }
  out.Add(text.substr(from));
  return out.Take();
}

}  // namespace kvgauge::jinja
