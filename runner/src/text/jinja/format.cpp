// SPDX-License-Identifier: Apache-2.0
// Python's "%" on texts and str.format.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "core/strings.h"
#include "src/text/jinja/functions.h"
#include "src/text/jinja/lexer.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge::jinja {
namespace {

constexpr int64_t kMostWidth = 1000;  // of a width or a precision

struct FieldStyle {
  std::string fill = " ";
  char align = '\0';  // < > = ^
  char sign = '-';    // - + or blank
  bool alternate = false;
  char group = '\0';
  int64_t width = 0, precision = -1;
  char type = '\0';
};

// Digits at `at`; -1 where there are none.
int64_t FieldNumber(std::string_view text, size_t& at) {
  if (at >= text.size() || !AsciiDigit(text[at])) return -1;
  int64_t value = 0;
  for (; at < text.size() && AsciiDigit(text[at]); ++at) {
    value = value * 10 + (text[at] - '0');
    if (value > kMostWidth) {
      Fail(FaultKind::kLimit, StrCat("a width or precision of more than ", kMostWidth));
    }
  }
  return value;
}

std::string Padded(const std::string& sign, const std::string& digits, const FieldStyle& style,
                   char otherwise) {
  const int64_t size = std::ssize(sign) + CharacterCount(Value::Text(digits));
  const int64_t pad = std::max<int64_t>(0, style.width - size);
  const char align = style.align != '\0' ? style.align : otherwise;
  const auto fill = [&](int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += style.fill;
    return out;
  };
  switch (align) {
    case '<':
      return StrCat(sign, digits, fill(pad));
    case '^':
      return StrCat(fill(pad / 2), sign, digits, fill(pad - pad / 2));
    case '=':
      return StrCat(sign, fill(pad), digits);
    default:
      return StrCat(fill(pad), sign, digits);
  }
}

std::string Grouped(std::string digits, char group) {
  const size_t point = std::min(digits.find_first_of(".e"), digits.size());
  for (size_t at = point; group != '\0' && at > 3; at -= 3) digits.insert(at - 3, 1, group);
  return digits;
}

std::string SignOf(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

std::string WholeText(const Value& value, const FieldStyle& style) {
  const int64_t number = value.integer();
  uint64_t size =
      number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  const char type = style.type;
  const uint64_t base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  std::string digits;
  do {
    const char* const all = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    digits.insert(digits.begin(), all[size % base]);
    size /= base;
  } while (size > 0);
  if (style.precision > 0 && std::ssize(digits) < style.precision) {
    digits.insert(0, static_cast<size_t>(style.precision) - digits.size(), '0');
  }
  std::string sign = SignOf(number < 0, style.sign);
  if (style.alternate && base != 10) sign += StrCat("0", type);
  return Padded(sign, Grouped(digits, style.group), style, '>');
}

std::string RealText(double number, const FieldStyle& style) {
  const bool percent = style.type == '%';
  const bool plain = style.type == '\0' && style.precision < 0;
  const double size = std::fabs(percent ? number * 100 : number);
  std::string digits;
  if (plain) {
    digits = FloatText(size);
  } else {
    const char type = percent ? 'f' : style.type == '\0' ? 'g' : style.type;
    const std::string format = StrCat("%", style.alternate ? "#" : "", ".*", std::string(1, type));
    std::array<char, 1500> buffer = {};
    const auto precision = static_cast<int>(style.precision < 0 ? 6 : style.precision);
    const int length = std::snprintf(buffer.data(), buffer.size(), format.c_str(), precision, size);
    digits.assign(buffer.data(), std::min(static_cast<size_t>(length), buffer.size() - 1));
    if (percent) digits += '%';
  }
  return Padded(SignOf(std::signbit(number) && !std::isnan(number), style.sign),
                Grouped(digits, style.group), style, '>');
}

std::string FormatNumber(const Value& value, const FieldStyle& style) {
  constexpr std::string_view kReal = "fFeEgG%";
  if (value.Is(Kind::kFloat) || kReal.find(style.type) != std::string_view::npos) {
    return RealText(value.number(), style);
  }
  return WholeText(value, style);
}

// --- "%" -----------------------------------------------------------------------------------------

class Percent {
 public:
  Percent(const Value& format, const Value& arguments)
      : format_(format.str()), safe_(format.safe()), arguments_(arguments) {}

  std::string Run() {
    TextBuilder out;
    while (at_ < format_.size()) {
      const size_t sign = std::min(format_.find('%', at_), format_.size());
      out.Add(std::string_view(format_).substr(at_, sign - at_));
      at_ = sign + 1;
      if (sign < format_.size()) out.Add(One());
    }
    const bool spare = arguments_.Is(Kind::kTuple) ? used_ < arguments_.items().size()
                                                   : used_ == 0 && !arguments_.Is(Kind::kDict) &&
                                                         !arguments_.Is(Kind::kList) && !named_;
    if (spare) FailRuntime("not all arguments converted during string formatting");
    return out.Take();
  }

 private:
  Value Next() {
    if (arguments_.Is(Kind::kTuple)) {
      if (used_ >= arguments_.items().size()) FailRuntime("not enough arguments for format string");
      return arguments_.items()[used_++];
    }
    if (used_++ > 0) FailRuntime("not enough arguments for format string");
    return arguments_;
  }

  void Flags(FieldStyle& style) {
    for (; at_ < format_.size(); ++at_) {
      switch (format_[at_]) {
        case '-':
          style.align = '<';
          break;
        case '+':
          style.sign = '+';
          break;
        case ' ':
          if (style.sign != '+') style.sign = ' ';
          break;
        case '0':
          if (style.align == '\0') {
            style.align = '=';
            style.fill = "0";
          }
          break;
        case '#':
          style.alternate = true;
          break;
        default:
          return;
      }
    }
  }

  int64_t Width() {
    if (at_ < format_.size() && format_[at_] == '*') {
      ++at_;
      return std::clamp<int64_t>(WholeNumber(Next(), "* wants"), 0, kMostWidth);
    }
    return FieldNumber(format_, at_);
  }

  std::string One() {
    std::optional<Value> named;
    if (at_ < format_.size() && format_[at_] == '(') {
      const size_t end = format_.find(')', at_);
      if (end == std::string::npos) FailRuntime("incomplete format key");
      if (!arguments_.Is(Kind::kDict)) FailRuntime("format requires a mapping");
      const std::string key = format_.substr(at_ + 1, end - at_ - 1);
      const Value* found = arguments_.as<DictObject>().Find(key);
      if (found == nullptr) FailRuntime(Repr(Value::Text(key)));
      named = *found;
      named_ = true;
      at_ = end + 1;
    }
    FieldStyle style;
    Flags(style);
    style.width = std::max<int64_t>(0, Width());
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      style.precision = std::max<int64_t>(0, Width());
    }
    while (at_ < format_.size() &&
           std::string_view("hlL").find(format_[at_]) != std::string::npos) {
      ++at_;
    }
    if (at_ >= format_.size()) FailRuntime("incomplete format");
    // Messages are UTF-8: no character is cut.
    if (const size_t width = Utf8Width(format_[at_]); width > 1) {
      FailRuntime(StrCat("unsupported format character '", format_.substr(at_, width), "'"));
    }
    const char type = format_[at_++];
    if (type == '%') return "%";
    return Convert(named ? *named : Next(), type, style);
  }

  std::string Convert(const Value& value, char type, FieldStyle style) {
    if (style.align == '<') style.fill = " ";
    if (type == 's' || type == 'r' || type == 'a') {
      std::string text = type == 's' ? ToText(value) : Repr(value);
      if (safe_ && !(value.text() && value.safe())) text = Escaped(Value::Text(text));
      if (style.precision >= 0) text = Cut(text, style.precision);
      if (style.align == '=') style.align = '>', style.fill = " ";
      return Padded("", text, style, '>');
    }
    if (type == 'c') {
      if (value.text() && CharacterCount(value) == 1) return Padded("", value.str(), style, '>');
      std::string character;
      AppendUtf8(character, static_cast<char32_t>(WholeNumber(value, "%c wants")));
      return Padded("", character, style, '>');
    }
    constexpr std::string_view kWhole = "diuxXo", kReal = "fFeEgG";
    const bool whole = kWhole.find(type) != std::string_view::npos;
    if (!whole && kReal.find(type) == std::string_view::npos) {
      FailRuntime(StrCat("unsupported format character '", type, "'"));
    }
    if (!value.numeric()) {
      if (value.undefined()) FailRuntime(UndefinedMessage(value));
      FailRuntime(StrCat("%", type, " format: a real number is required, not ", TypeName(value)));
    }
    style.type = type == 'i' || type == 'u' ? 'd' : type;
    if (!whole) return RealText(value.number(), style);
    if (value.Is(Kind::kFloat)) {
      if (type != 'd' && type != 'i' && type != 'u') {
        FailRuntime(StrCat("%", type, " format: an integer is required, not float"));
      }
      return WholeText(Whole(value.number()), style);
    }
    return WholeText(value, style);
  }

  static Value Whole(double number) {
    if (!(std::fabs(number) < 9e18)) {
      Fail(FaultKind::kUnsupported, "a whole number beyond 64 bits is not supported");
    }
    return Value::Int(static_cast<int64_t>(number));
  }

  static std::string Cut(const std::string& text, int64_t most) {
    const Value whole = Value::Text(text);
    return std::string(Characters(whole, 0, std::min(most, CharacterCount(whole))));
  }

  const std::string& format_;
  const bool safe_;
  const Value& arguments_;
  size_t at_ = 0, used_ = 0;
  bool named_ = false;
};

// --- str.format ----------------------------------------------------------------------------------

// "[[fill]align][sign][#][0][width][,][.precision][type]"
FieldStyle ParseFieldStyle(std::string_view text) {
  FieldStyle style;
  constexpr std::string_view kAligns = "<>=^";
  size_t at = 0;
  const size_t first = text.empty() ? 0 : Utf8Width(text[0]);
  if (text.size() > first && first > 0 && kAligns.find(text[first]) != std::string_view::npos) {
    style.fill = std::string(text.substr(0, first));
    style.align = text[first];
    at = first + 1;
  } else if (!text.empty() && kAligns.find(text[0]) != std::string_view::npos) {
    style.align = text[at++];
  }
  const auto next = [&](std::string_view any) {
    if (at >= text.size() || any.find(text[at]) == std::string_view::npos) return '\0';
    return text[at++];
  };
  if (const char sign = next("+- ")) style.sign = sign;
  style.alternate = next("#") != '\0';
  if (next("0") != '\0' && style.align == '\0') {
    style.align = '=';
    style.fill = "0";
  }
  style.width = std::max<int64_t>(0, FieldNumber(text, at));
  style.group = next(",_");
  if (next(".") != '\0') {
    style.precision = FieldNumber(text, at);
    if (style.precision < 0) FailRuntime("Format specifier missing precision");
  }
  style.type = next("sdxXobeEfFgG%");
  if (at != text.size()) FailRuntime(StrCat("Invalid format specifier ", Quoted(text)));
  return style;
}

std::string Styled(const Value& value, std::string_view spec) {
  if (spec.empty()) return ToText(value);
  const FieldStyle style = ParseFieldStyle(spec);
  if (value.numeric() && style.type != 's' && !(value.Is(Kind::kBool) && style.type == '\0')) {
    return FormatNumber(value, style);
  }
  if (!value.text() && !value.Is(Kind::kBool)) {
    FailRuntime(StrCat("unsupported format string passed to ", TypeName(value), ".__format__"));
  }
  if (style.type != 's' && style.type != '\0') {
    FailRuntime(StrCat("Unknown format code '", style.type, "' for object of type 'str'"));
  }
  const Value whole = Value::Text(ToText(value));
  const int64_t size = CharacterCount(whole);
  const int64_t most = style.precision < 0 ? size : std::min(size, style.precision);
  return Padded("", std::string(Characters(whole, 0, most)), style, '<');
}

}  // namespace

Value PercentFormat(const Value& format, const Value& arguments) {
  return Value::Text(Percent(format, arguments).Run(), format.safe());
}

Value BraceFormat(const Value& format, const Arguments& arguments) {
  const std::string& text = format.str();
  TextBuilder out;
  size_t automatic = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      out.Add(c);
      at += 2;
      continue;
    }
    if (c == '}') FailRuntime("Single '}' encountered in format string");
    if (c != '{') {
      const size_t end = std::min(text.find_first_of("{}", at), text.size());
      out.Add(std::string_view(text).substr(at, end - at));
      at = end;
      continue;
    }
    const size_t end = text.find('}', at);
    if (end == std::string::npos) FailRuntime("expected '}' before end of string");
    std::string_view field = std::string_view(text).substr(at + 1, end - at - 1);
    at = end + 1;
    std::string_view spec;
    if (const size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    if (field.find_first_of(".[!{") != std::string_view::npos ||
        spec.find('{') != std::string_view::npos) {
      Fail(FaultKind::kUnsupported, StrCat("the field ", Quoted(field),
                                           " of format(): only names, numbers and a format "
                                           "are supported"));
    }
    size_t digits = 0;
    const int64_t number =
        field.empty() ? static_cast<int64_t>(automatic++) : FieldNumber(field, digits);
    const Value* value = nullptr;
    if (field.empty() || digits == field.size()) {
      if (number >= std::ssize(arguments.positional)) {
        FailRuntime(
            StrCat("Replacement index ", number, " out of range for positional args tuple"));
      }
      value = &arguments.positional[static_cast<size_t>(number)];
    } else {
      for (const auto& [name, given] : arguments.named) {
        if (name == field) value = &given;
      }
      if (value == nullptr) FailRuntime(Repr(Value::Text(std::string(field))));
    }
    std::string piece = Styled(*value, spec);
    const bool safe_piece = value->text() && value->safe();
    out.Add(format.safe() && !safe_piece ? Escaped(Value::Text(piece)) : piece);
  }
  return Value::Text(out.Take(), format.safe());
}

}  // namespace kvgauge::jinja
