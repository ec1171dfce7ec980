// SPDX-License-Identifier: Apache-2.0
#include "src/python_literal.h"

#include <charconv>
#include <string>
#include <utility>

#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr int kMaxDepth = 64;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Json> Whole() {
    KVG_ASSIGN(Json value, Value(0));
    SkipBlanks();
    if (at_ < text_.size()) return Wrong("text follows the value");
    return value;
  }

 private:
  Error Wrong(std::string_view what) const {
    return BadInput(StrCat("not a Python literal at byte ", at_ + 1, ": ", what));
  }
  void SkipBlanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }
  bool Take(char c) {
    SkipBlanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool TakeWord(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Result<Json> Value(int depth) {
    if (depth > kMaxDepth) return Wrong("nested too deeply");
    SkipBlanks();
    if (at_ >= text_.size()) return Wrong("a value is missing");
    const char c = text_[at_];
    if (AtString()) return Strings();
    if (c == '[' || c == '(') return List(c == '[' ? ']' : ')', depth);
    if (c == '{') return Dictionary(depth);
    if (TakeWord("None")) return Json(nullptr);
    if (TakeWord("True")) return Json(true);
    if (TakeWord("False")) return Json(false);
    return Number();
  }

  Result<Json> Number() {
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    int64_t whole = 0;
    const auto as_whole = std::from_chars(begin, end, whole);
    double real = 0;
    const auto as_real = std::from_chars(begin, end, real);
    if (as_real.ec != std::errc()) return Wrong("expected a value");
    at_ += static_cast<size_t>(as_real.ptr - begin);
    if (as_whole.ec == std::errc() && as_whole.ptr == as_real.ptr) return Json(whole);
    return Json(real);
  }

  Result<Json> List(char close, int depth) {
    ++at_;
    Json list = Json::array();
    while (!Take(close)) {
      if (!list.empty() && !Take(',')) return Wrong("expected a comma");
      if (Take(close)) break;
      KVG_ASSIGN(Json value, Value(depth + 1));
      list.push_back(std::move(value));
    }
    return list;
  }

  Result<Json> Dictionary(int depth) {
    ++at_;
    Json object = Json::object();
    while (!Take('}')) {
      if (!object.empty() && !Take(',')) return Wrong("expected a comma");
      if (Take('}')) break;
      KVG_ASSIGN(const Json key, Value(depth + 1));
      if (!key.is_string()) return Wrong("keys must be strings");
      if (!Take(':')) return Wrong("expected a colon");
      KVG_ASSIGN(Json value, Value(depth + 1));
      object[key.get<std::string>()] = std::move(value);
    }
    return object;
  }

  static bool IsOneOf(char c, std::string_view any) { return any.find(c) != any.npos; }

  // Where a string begins, u or r before its quote.
  bool AtString() const {
    const std::string_view rest = text_.substr(at_, 2);
    return !rest.empty() &&
           (IsOneOf(rest[0], "'\"") ||
            (rest.size() == 2 && IsOneOf(rest[0], "uUrR") && IsOneOf(rest[1], "'\"")));
  }

  // Strings that follow each other are one.
  Result<Json> Strings() {
    std::string all;
    while (true) {
      KVG_TRY(String(all));
      SkipBlanks();
      if (!AtString()) return Json(all);
    }
  }

  Status String(std::string& out) {
    const bool raw = IsOneOf(text_[at_], "rR");
    if (!IsOneOf(text_[at_], "'\"")) ++at_;
    const std::string three(3, text_[at_]);
    const std::string_view quote =
        text_.substr(at_, 3) == three ? std::string_view(three) : std::string_view(three).substr(2);
    at_ += quote.size();
    while (text_.substr(at_, quote.size()) != quote) {
      const bool ends = at_ >= text_.size() || (text_[at_] == '\n' && quote.size() == 1);
      if (ends) return Wrong("the string has no end");
      const char c = text_[at_++];
      if (c != '\\') {
        out += c;
        continue;
      }
      if (at_ >= text_.size()) return Wrong("the string has no end");
      if (raw) {
        out.append(1, c).append(1, text_[at_++]);
      } else {
        KVG_TRY(Escape(text_[at_++], out));
      }
    }
    at_ += quote.size();
    return {};
  }

  Status Escape(char kind, std::string& out) {
    constexpr std::string_view kLetters = "abfv", kMeant = "\a\b\f\v";
    if (const size_t letter = kLetters.find(kind); letter != kLetters.npos) {
      out += kMeant[letter];
      return {};
    }
    if (kind >= '0' && kind <= '7') {
      uint32_t value = 0;
      const std::string_view octal = text_.substr(at_ - 1, 3);
      const auto parsed = std::from_chars(octal.data(), octal.data() + octal.size(), value, 8);
      at_ += static_cast<size_t>(parsed.ptr - octal.data()) - 1;
      AppendUtf8(out, static_cast<char32_t>(value));
      return {};
    }
    switch (kind) {
      case 'n':
        out += '\n';
        return {};
      case 't':
        out += '\t';
        return {};
      case 'r':
        out += '\r';
        return {};
      case '\\':
      case '\'':
      case '"':
        out += kind;
        return {};
      case '\n':
        return {};
      case 'x':
        return CodePoint(2, out);
      case 'u':
        return CodePoint(4, out);
      case 'U':
        return CodePoint(8, out);
      default:  // Python keeps the backslash of what it does not know
        out += '\\';
        out += kind;
        return {};
    }
  }

  Status CodePoint(size_t digits, std::string& out) {
    uint32_t value = 0;
    const std::string_view hex = text_.substr(at_, digits);
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    if (error != std::errc() || hex.size() != digits || end != hex.data() + digits) {
      return Wrong("an escape is cut short");
    }
    at_ += digits;
    AppendUtf8(out, static_cast<char32_t>(value));
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<Json> ParsePythonLiteral(std::string_view text) { return Parser(text).Whole(); }

}  // namespace kvgauge
