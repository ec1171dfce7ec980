// SPDX-License-Identifier: Apache-2.0
// Filters of texts, numbers and single values.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/strings.h"
#include "src/text/jinja/functions.h"
#include "src/text/jinja/lexer.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge::jinja {
namespace {

// A text as it is, anything else printed; a safe text stays safe.
Value SoftText(const Value& value) { return value.text() ? value : Value::Text(ToText(value)); }

Value Default(Engine&, const Value& self, const Given& given) {
  const bool missing = self.undefined() || (given.Flag(1, false) && !Truth(self));
  if (!missing) return self;
  return given[0] != nullptr ? *given[0] : Value::Text("");
}

Value Trim(Engine&, const Value& self, const Given& given) {
  const Value text = SoftText(self);
  const bool all = given[0] == nullptr || given[0]->none();
  return Value::Text(Stripped(text.str(), all ? nullptr : &given.Text(0), true, true), text.safe());
}

// jinja2's own: words begin behind blanks, "-", "(", "{", "[" and "<".
Value TitleFilter(Engine&, const Value& self, const Given&) {
  const std::string text = ToText(self);
  TextBuilder out;
  size_t word = 0;
  const auto flush = [&](size_t end) {
    if (end == word) return;
    const std::string_view piece = std::string_view(text).substr(word, end - word);
    const size_t first = Utf8Width(piece[0]);
    out.Add(Upper(piece.substr(0, first)));
    out.Add(Lower(piece.substr(first)));
  };
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    if (IsSpace(c.value) || (c.value < 128 && std::string_view("-({[<").find(static_cast<char>(
                                                  c.value)) != std::string::npos)) {
      flush(at);
      out.Add(std::string_view(text).substr(at, c.width));
      word = at + c.width;
    }
    at += c.width;
  }
  flush(text.size());
  return Value::Text(out.Take());
}

Value ReplaceFilter(Engine&, const Value& self, const Given& given) {
  return Value::Text(
      Replaced(ToText(self), ToText(*given[0]), ToText(*given[1]), given.Int(2, -1)));
}

Value Indent(Engine& engine, const Value& self, const Given& given) {
  std::string text = ToText(self);
  const bool safe = self.text() && self.safe();
  TextBuilder indent;
  if (given[0] != nullptr && given[0]->text()) {
    indent.Add(given[0]->str());
  } else {
    indent.Repeat(" ", given.Int(0, 4));
  }
  const bool first = given.Flag(1, false), blank = given.Flag(2, false);
  // A line break of its own, so that the last line counts.
  text += '\n';
  TextBuilder out;
  if (first) out.Add(indent.text());
  Arguments none;
  const Value lines = FindMethod(Value::Text(text), "splitlines")
                          ->run(engine, Value::Text(text), Given("splitlines", "keepends?", none));
  const std::vector<Value>& items = lines.items();
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) {
      out.Add('\n');
      if (blank || !items[i].str().empty()) out.Add(indent.text());
    }
    out.Add(items[i].str());
  }
  return Value::Text(out.Take(), safe);
}

Value CenterFilter(Engine& engine, const Value& self, const Given& given) {
  Arguments arguments;
  arguments.positional.push_back(Value::Int(given.Int(0, 80)));
  return FindMethod(SoftText(self), "center")
      ->run(engine, SoftText(self), Given("center", "width fillchar?", arguments));
}

Value Truncate(Engine&, const Value& self, const Given& given) {
  Value text = SoftText(self);
  const int64_t length = given.Int(0, 255), leeway = given.Int(3, 5);
  const std::string end = given[2] != nullptr ? given.Text(2) : "...";
  const int64_t end_length = CharacterCount(Value::Text(end));
  if (length < end_length) FailRuntime(StrCat("expected length >= ", end_length, ", got ", length));
  if (leeway < 0) FailRuntime(StrCat("expected leeway >= 0, got ", leeway));
  if (CharacterCount(text) <= length + leeway) return text;
  std::string cut(Characters(text, 0, length - end_length));
  if (!given.Flag(1, false)) {
    if (const size_t at = cut.rfind(' '); at != std::string::npos) cut.resize(at);
  }
  return Value::Text(cut + end, text.safe());
}

Value WordCount(Engine&, const Value& self, const Given&) {
  const std::string text = ToText(self);
  int64_t words = 0;
  bool within = false;
  for (size_t at = 0; at < text.size(); at += CodePointAt(text, at).width) {
    const char32_t c = CodePointAt(text, at).value;
    const bool word = c == '_' || HasClass(c, kLetter | kNumber);
    words += word && !within;
    within = word;
  }
  return Value::Int(words);
}

Value UrlEncode(Engine&, const Value& self, const Given&) {
  const auto quoted = [](const std::string& text, bool keep_slash) {
    TextBuilder out;
    for (const char c : text) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-' || c == '~' ||
                         (c == '/' && keep_slash);
      std::array<char, 8> buffer = {};
      std::snprintf(buffer.data(), buffer.size(), "%%%02X", static_cast<uint8_t>(c));
      if (plain) {
        out.Add(c);
      } else {
        out.Add(c == ' ' && !keep_slash ? "+" : buffer.data());
      }
    }
    return out.Take();
  };
  if (!self.Is(Kind::kDict)) return Value::Text(quoted(ToText(self), true));
  TextBuilder out;
  for (const auto& [key, value] : self.as<DictObject>().items()) {
    if (!out.text().empty()) out.Add('&');
    out.Add(StrCat(quoted(ToText(key), false), "=", quoted(ToText(value), false)));
  }
  return Value::Text(out.Take());
}

// A text that Python's int() or float() would read; nothing else.
std::optional<double> ReadNumber(std::string_view text) {
  const std::string stripped = Stripped(text, nullptr, true, true);
  std::string digits;
  for (size_t i = 0; i < stripped.size(); ++i) {
    const bool joins = stripped[i] == '_' && i > 0 && i + 1 < stripped.size() &&
                       std::isdigit(static_cast<uint8_t>(stripped[i - 1])) != 0 &&
                       std::isdigit(static_cast<uint8_t>(stripped[i + 1])) != 0;
    if (!joins) digits += stripped[i];
  }
  if (digits.starts_with('+')) digits.erase(0, 1);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || end != digits.data() + digits.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::nullopt;
  return value;
}

Value FromReal(double value, const Value& otherwise) {
  if (!std::isfinite(value)) return otherwise;
  if (std::fabs(value) >= 9.2e18) {
    Fail(FaultKind::kUnsupported, "a whole number beyond 64 bits is not supported");
  }
  return Value::Int(static_cast<int64_t>(value));
}

Value ToInt(Engine&, const Value& self, const Given& given) {
  Value otherwise = given[0] != nullptr ? *given[0] : Value::Int(0);
  const int64_t base = given.Int(1, 10);
  if (self.undefined()) FailRuntime(UndefinedMessage(self));
  if (self.integral()) return Value::Int(self.integer());
  if (self.Is(Kind::kFloat)) return FromReal(self.number(), otherwise);
  if (!self.text()) return otherwise;
  const std::string stripped = Stripped(self.str(), nullptr, true, true);
  std::string_view digits = stripped;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  if (base != 10 && base != 16 && base != 8 && base != 2) {
    Fail(FaultKind::kUnsupported, StrCat("int() of base ", base, " is not supported"));
  }
  const char mark = base == 16 ? 'x' : base == 8 ? 'o' : 'b';
  if (base != 10 && digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == mark) {
    digits.remove_prefix(2);
  }
  int64_t whole = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), whole, static_cast<int>(base));
  if (!digits.empty() && error == std::errc() && end == digits.data() + digits.size()) {
    return Value::Int(whole);
  }
  const std::optional<double> real = ReadNumber(self.str());
  return real ? FromReal(*real, otherwise) : otherwise;
}

Value ToFloat(Engine&, const Value& self, const Given& given) {
  Value otherwise = given[0] != nullptr ? *given[0] : Value::Float(0);
  if (self.undefined()) FailRuntime(UndefinedMessage(self));
  if (self.numeric()) return Value::Float(self.number());
  if (!self.text()) return otherwise;
  const std::optional<double> real = ReadNumber(self.str());
  return real ? Value::Float(*real) : otherwise;
}

Value Round(Engine&, const Value& self, const Given& given) {
  const int64_t precision = given.Int(0, 0);
  const std::string method = given[1] != nullptr ? given.Text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    FailRuntime("method must be common, ceil or floor");
  }
  if (self.undefined()) FailRuntime(UndefinedMessage(self));
  if (!self.numeric()) FailRuntime(StrCat("a ", TypeName(self), " cannot be rounded"));
  if (precision < 0 || precision > 300) {
    Fail(FaultKind::kUnsupported, StrCat("round() to ", precision, " digits is not supported"));
  }
  if (method == "common") {
    if (self.integral()) return Value::Int(self.integer());
    if (!std::isfinite(self.number())) return self;
    std::array<char, 700> buffer = {};
    std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(precision), self.number());
    double rounded = 0;
    std::from_chars(buffer.data(), buffer.data() + std::string_view(buffer.data()).size(), rounded);
    return Value::Float(rounded);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = self.number() * scale;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value Abs(Engine&, const Value& self, const Given&) {
  if (self.undefined()) FailRuntime(UndefinedMessage(self));
  if (self.Is(Kind::kFloat)) return Value::Float(std::fabs(self.number()));
  if (!self.integral()) FailRuntime(StrCat("bad operand type for abs(): '", TypeName(self), "'"));
  return self.integer() < 0 ? BinaryOp(Op::kSub, Value::Int(0), self) : Value::Int(self.integer());
}

Value JsonOf(Engine&, const Value& self, const Given& given) {
  JsonStyle style;
  style.ascii = given.Flag(0, false);
  if (const Value* indent = given[1]; indent != nullptr && !indent->none()) {
    style.indent = 1;
    style.item_separator = ",";
    if (indent->text()) {
      style.indent_text = indent->str();
    } else {
      TextBuilder blanks;
      blanks.Repeat(" ", given.Int(1, 0));
      style.indent_text = blanks.Take();
    }
  }
  if (const Value* pair = given[2]; pair != nullptr && !pair->none()) {
    const Value both = Listed(*pair);
    if (both.items().size() != 2 || !both.items()[0].text() || !both.items()[1].text()) {
      FailRuntime("tojson: separators must be two texts");
    }
    style.item_separator = both.items()[0].str();
    style.key_separator = both.items()[1].str();
  }
  style.sorted = given.Flag(3, false);
  return Value::Text(ToJson(self, style));
}

Value FormatText(Engine&, const Value& self, const Given& given) {
  const Arguments& all = given.all();
  if (!all.named.empty()) {
    if (!all.positional.empty()) {
      FailRuntime("can't handle positional and keyword arguments at the same time");
    }
    auto* dict = new DictObject;
    const Value names = Value::Of(Kind::kDict, dict);
    for (const auto& [name, value] : all.named) dict->Set(Value::Text(name), value);
    return PercentFormat(SoftText(self), names);
  }
  return PercentFormat(SoftText(self), Value::Tuple(all.positional));
}

#define KVG_FILTER(expr)                                        \
  [](Engine&, const Value& self, const Given& given) -> Value { \
    static_cast<void>(given);                                   \
    return expr;                                                \
  }

constexpr auto kEscape = KVG_FILTER(Value::Text(Escaped(self), true));

const FilterSpec kTextFilters[] = {
    {"trim", "chars?", Trim},
    {"upper", "", KVG_FILTER(Value::Text(Upper(ToText(self)), SoftText(self).safe()))},
    {"lower", "", KVG_FILTER(Value::Text(Lower(ToText(self)), SoftText(self).safe()))},
    {"capitalize", "", KVG_FILTER(Value::Text(Capitalized(ToText(self)), SoftText(self).safe()))},
    {"title", "", TitleFilter},
    {"replace", "old new count?", ReplaceFilter},
    {"string", "", KVG_FILTER(SoftText(self))},
    {"safe", "", KVG_FILTER(Value::Text(ToText(self), true))},
    {"escape", "", kEscape},
    {"e", "", kEscape},
    {"forceescape", "", KVG_FILTER(Value::Text(Escaped(Value::Text(ToText(self))), true))},
    {"indent", "width? first? blank?", Indent},
    {"center", "width?", CenterFilter},
    {"truncate", "length? killwords? end? leeway?", Truncate},
    {"wordcount", "", WordCount},
    {"urlencode", "", UrlEncode},
    {"format", "*", FormatText},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", JsonOf},
    {"default", "default_value? boolean?", Default},
    {"d", "default_value? boolean?", Default},
    {"int", "default? base?", ToInt},
    {"float", "default?", ToFloat},
    {"round", "precision? method?", Round},
    {"abs", "", Abs},
    {"length", "", KVG_FILTER(Value::Int(LengthOf(self)))},
    {"count", "", KVG_FILTER(Value::Int(LengthOf(self)))},
};

}  // namespace

std::span<const FilterSpec> TextFilters() { return kTextFilters; }

std::string Escaped(const Value& value) {
  std::string text = ToText(value);
  if (value.text() && value.safe()) return text;
  TextBuilder out;
  for (const char c : text) {
    constexpr std::string_view kMarkup = "&<>\"'";
    constexpr std::array<std::string_view, 5> kEscapes = {"&amp;", "&lt;", "&gt;", "&#34;",
                                                          "&#39;"};
    const size_t known = kMarkup.find(c);
    known == std::string_view::npos ? out.Add(c) : out.Add(kEscapes[known]);
  }
  return out.Take();
}

}  // namespace kvgauge::jinja
