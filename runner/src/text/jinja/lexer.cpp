// SPDX-License-Identifier: Apache-2.0
#include "src/text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "core/strings.h"
#include "src/text/jinja/fault.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge::jinja {
namespace {

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool HexDigit(char c) { return AsciiDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

bool NameCharacter(char32_t c) {
  return c == '_' || HasClass(c, kLetter | kNumber | kMark) || c == 0xb7;
}

// Line breaks as jinja2 reads them; the last one of the file is left out.
std::string Normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(Normalized(source)) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) {
      Root();
    }
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void FailHere(std::string message) const {
    Fail(FaultKind::kSyntax, std::move(message), line_);
  }
  bool Ahead(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }
  char Peek(size_t offset = 0) const {
    return at_ + offset < source_.size() ? source_[at_ + offset] : '\0';
  }
  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void Advance(size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes),
                                         '\n'));
    at_ += bytes;
    line_starts_ = bytes > 0 && source_[at_ - 1] == '\n';
  }
  size_t SpaceFrom(size_t at) const {
    while (at < source_.size()) {
      const CodePoint c = CodePointAt(source_, at);
      if (!IsSpace(c.value)) break;
      at += c.width;
    }
    return at;
  }

  // Behind a tag's end mark of `width` bytes: "-" takes the blanks that follow, nothing takes one
  // line break.
  void EndTag(size_t width, char sign, bool trims) {
    size_t end = at_ + width;
    if (sign == '-') {
      end = SpaceFrom(end);
    } else if (sign != '+' && trims && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    Advance(end - at_);
  }

  // The text before a tag, without what the tag takes of it.
  void Data(std::string_view text, char sign, bool variable) {
    if (sign == '-') {
      while (!text.empty()) {
        const CodePoint last = CodePointBefore(text, text.size());
        if (!IsSpace(last.value)) break;
        text.remove_suffix(last.width);
      }
    } else if (sign != '+' && !variable) {
      const size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
      if (line > 0 || line_starts_) {
        size_t at = line;
        while (at < text.size() && IsSpace(CodePointAt(text, at).value)) {
          at += CodePointAt(text, at).width;
        }
        if (at == text.size()) text = text.substr(0, line);
      }
    }
    if (!text.empty()) Add(TokenKind::kData, std::string(text));
  }

  static char SignAt(std::string_view text, size_t at) {
    return at < text.size() && (text[at] == '-' || text[at] == '+') ? text[at] : '\0';
  }

  // "{% raw %}" at `tag`: the bytes that it takes; 0 where something else stands there.
  size_t RawBegin(size_t tag) const {
    size_t at = tag + 2;
    if (SignAt(source_, at) != '\0') ++at;
    at = SpaceFrom(at);
    if (source_.compare(at, 3, "raw") != 0) return 0;
    at = SpaceFrom(at + 3);
    if (source_.compare(at, 3, "-%}") == 0) return SpaceFrom(at + 3) - tag;
    return source_.compare(at, 2, "%}") == 0 ? at + 2 - tag : 0;
  }

  void Root() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        tag = std::string::npos;
        break;
      }
      const char next = source_[tag + 1];
      if (next == '%' || next == '{' || next == '#') break;
      ++tag;
    }
    if (tag == std::string::npos) {
      Add(TokenKind::kData, source_.substr(at_));
      Advance(source_.size() - at_);
      return;
    }
    const char type = source_[tag + 1];
    const char sign = SignAt(source_, tag + 2);
    Data(std::string_view(source_).substr(at_, tag - at_), sign, type == '{');
    Advance(tag - at_);
    if (type == '#') {
      Comment(sign);
    } else if (const size_t raw = type == '%' ? RawBegin(tag) : 0; raw > 0) {
      Advance(raw);
      Raw();
    } else {
      Add(type == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
      Advance(sign == '\0' ? 2 : 3);
      Tag(type == '{');
    }
  }

  void Comment(char sign) {
    const size_t begin = at_ + (sign == '\0' ? 2 : 3);
    const size_t end = source_.find("#}", begin);
    if (end == std::string::npos) FailHere("Missing end of comment tag");
    const char last = end > begin ? SignAt(source_, end - 1) : '\0';
    Advance(end - at_);
    EndTag(2, last, true);
  }

  void Raw() {
    for (size_t at = source_.find("{%", at_); at != std::string::npos;
         at = source_.find("{%", at + 1)) {
      size_t end = at + 2;
      const char sign = SignAt(source_, end);
      if (sign != '\0') ++end;
      end = SpaceFrom(end);
      if (source_.compare(end, 6, "endraw") != 0) continue;
      end = SpaceFrom(end + 6);
      const char last = SignAt(source_, end);
      if (last != '\0') ++end;
      if (source_.compare(end, 2, "%}") != 0) continue;
      Data(std::string_view(source_).substr(at_, at - at_), sign, false);
      Advance(end - at_);
      EndTag(2, last, true);
      return;
    }
    FailHere("Missing end of raw directive");
  }

  // The inside of "{{ }}" or "{% %}".
  void Tag(bool variable) {
    const std::string_view end = variable ? "}}" : "%}";
    std::vector<char> open;
    while (at_ < source_.size()) {
      if (open.empty()) {
        const char sign = SignAt(source_, at_);
        const bool signed_end =
            sign != '\0' && !(variable && sign == '+') && source_.compare(at_ + 1, 2, end) == 0;
        if (signed_end || Ahead(end)) {
          Add(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
          EndTag(signed_end ? 3 : 2, signed_end ? sign : '\0', !variable);
          return;
        }
      }
      Piece(open);
    }
  }

  void Piece(std::vector<char>& open) {
    const CodePoint c = CodePointAt(source_, at_);
    if (IsSpace(c.value)) {
      Advance(SpaceFrom(at_) - at_);
    } else if (AsciiDigit(Peek()) || c.value == '"' || c.value == '\'') {
      AsciiDigit(Peek()) ? Number() : Text();
    } else if (NameCharacter(c.value)) {
      size_t end = at_;
      while (end < source_.size() && NameCharacter(CodePointAt(source_, end).value)) {
        end += CodePointAt(source_, end).width;
      }
      Add(TokenKind::kName, source_.substr(at_, end - at_));
      Advance(end - at_);
    } else {
      Sign(open);
    }
  }

  void Sign(std::vector<char>& open) {
    const auto* const found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                           [&](std::string_view sign) { return Ahead(sign); });
    if (found == std::end(kOperators)) {
      const size_t width = CodePointAt(source_, at_).width;
      FailHere(StrCat("unexpected char ", Quoted(source_.substr(at_, width))));
    }
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') {
      open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) FailHere(StrCat("unexpected '", c, "'"));
      if (open.back() != c) {
        FailHere(StrCat("unexpected '", c, "', expected '", open.back(), "'"));
      }
      open.pop_back();
    }
    Add(TokenKind::kOperator, std::string(*found));
    Advance(found->size());
  }

  // Digits, single "_" between them allowed.
  template <class IsDigit>
  size_t Digits(size_t at, const IsDigit& is_digit, std::string& out) const {
    while (at < source_.size()) {
      const bool joined =
          source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1]);
      if (!is_digit(source_[at]) && !joined) break;
      if (!joined) out += source_[at];
      ++at;
    }
    return at;
  }

  void Number() {
    std::string text;
    const char base = static_cast<char>(Peek(1) | 0x20);
    if (Peek() == '0' && (base == 'x' || base == 'o' || base == 'b')) {
      const auto digit = [&](char c) {
        return base == 'x' ? HexDigit(c) : base == 'o' ? c >= '0' && c < '8' : c == '0' || c == '1';
      };
      const size_t end = Digits(at_ + 2, digit, text);
      if (!text.empty()) {
        Add(TokenKind::kInteger, StrCat("0", base, text));
        return Advance(end - at_);
      }
    }
    size_t end = Digits(at_, AsciiDigit, text);
    bool real = false;
    // No fraction behind a dot: "x.0.1" asks for two elements.
    if (at_ == 0 || source_[at_ - 1] != '.') {
      if (end + 1 < source_.size() && source_[end] == '.' && AsciiDigit(source_[end + 1])) {
        text += '.';
        end = Digits(end + 1, AsciiDigit, text);
        real = true;
      }
      size_t exponent = end;
      if (exponent < source_.size() && (source_[exponent] | 0x20) == 'e') {
        std::string tail = "e";
        ++exponent;
        if (SignAt(source_, exponent) != '\0') tail += source_[exponent++];
        if (exponent < source_.size() && AsciiDigit(source_[exponent])) {
          end = Digits(exponent, AsciiDigit, tail);
          text += tail;
          real = true;
        }
      }
    }
    Add(real ? TokenKind::kFloat : TokenKind::kInteger, text);
    Advance(end - at_);
  }

  void Text() {
    const char quote = Peek();
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) {
      FailHere(StrCat("unexpected char ", Quoted(std::string(1, quote)),
                      ": the text that it begins has no end"));
    }
    Add(TokenKind::kString, Unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    Advance(end + 1 - at_);
  }

  // The digits of \x, \u and \U.
  char32_t HexCode(std::string_view text, size_t& at, size_t digits, char kind) const {
    char32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at) {
      if (at >= text.size() || !HexDigit(text[at])) {
        FailHere(StrCat("truncated \\", kind, " escape"));
      }
      const char c = text[at];
      value = value * 16 + static_cast<char32_t>(AsciiDigit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (value > 0x10ffff) FailHere("illegal Unicode character");
    if (value >= 0xd800 && value < 0xe000) {
      Fail(FaultKind::kUnsupported, "a lone surrogate in a text is not supported", line_);
    }
    return value;
  }

  std::string Unescaped(std::string_view text) const {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      if (text[at] != '\\') {
        out += text[at++];
        continue;
      }
      if (++at >= text.size()) FailHere("\\ at end of string");
      Escape(text, at, out);
    }
    return out;
  }

  void Escape(std::string_view text, size_t& at, std::string& out) const {
    constexpr std::string_view kPlain = "\\'\"abfnrtv", kMeans = "\\'\"\a\b\f\n\r\t\v";
    const char c = text[at];
    if (const size_t known = kPlain.find(c); known != std::string_view::npos) {
      out += kMeans[known];
      ++at;
    } else if (c == '\n') {
      ++at;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      ++at;
      AppendUtf8(out, HexCode(text, at, c == 'x' ? 2 : c == 'u' ? 4 : 8, c));
    } else if (c >= '0' && c < '8') {
      char32_t value = 0;
      for (int i = 0; i < 3 && at < text.size() && text[at] >= '0' && text[at] < '8'; ++i, ++at) {
        value = value * 8 + static_cast<char32_t>(text[at] - '0');
      }
      AppendUtf8(out, value);
    } else if (c == 'N') {
      Fail(FaultKind::kUnsupported, "\\N{...} in a text is not supported", line_);
    } else if (static_cast<uint8_t>(c) >= 0x80) {
      // jinja2 spells such characters as escapes first, and the backslash takes theirs.
      const CodePoint point = CodePointAt(text, at);
      const auto code = static_cast<unsigned>(point.value);
      std::array<char, 16> spelled = {};
      std::snprintf(spelled.data(), spelled.size(),
                    code < 0x100     ? "x%02x"
                    : code < 0x10000 ? "u%04x"
                                     : "U%08x",
                    code);
      out += '\\';
      out += spelled.data();
      at += point.width;
    } else {
      out += '\\';
    }
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

bool IsSpace(char32_t c) { return HasClass(c, kSpace) || (c >= 0x1c && c <= 0x1f); }

std::vector<Token> Tokenize(std::string_view source) { return Lexer(source).Run(); }

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "template data";
    case TokenKind::kVariableBegin:
      return "begin of print statement";
    case TokenKind::kVariableEnd:
      return "end of print statement";
    case TokenKind::kBlockBegin:
      return "begin of statement block";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kString:
      return StrCat("text ", Quoted(token.text));
    case TokenKind::kEnd:
      return "end of template";
    default:
      return Quoted(token.text);
  }
}

}  // namespace kvgauge::jinja
