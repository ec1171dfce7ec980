// SPDX-License-Identifier: Apache-2.0
// str() and repr() of Python.
#include <utf8proc.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "core/strings.h"
#include "src/text/jinja/value.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge::jinja {
namespace {

constexpr int kMostPrinted = 250;

bool Printable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

void AppendEscaped(char32_t c, TextBuilder& out) {
  std::array<char, 16> buffer = {};
  const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(buffer.data(), buffer.size(), format, static_cast<unsigned>(c));
  out.Add(buffer.data());
}

void ReprText(const std::string& text, TextBuilder& out) {
  const bool doubled = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = doubled ? '"' : '\'';
  out.Add(quote);
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    if (c.value == '\\' || c.value == static_cast<char32_t>(quote)) {
      out.Add('\\');
      out.Add(static_cast<char>(c.value));
    } else if (c.value == '\n') {
      out.Add("\\n");
    } else if (c.value == '\r') {
      out.Add("\\r");
    } else if (c.value == '\t') {
      out.Add("\\t");
    } else if (Printable(c.value)) {
      out.Add(std::string_view(text).substr(at, c.width));
    } else {
      AppendEscaped(c.value, out);
    }
    at += c.width;
  }
  out.Add(quote);
}

void ReprInto(const Value& value, int depth, TextBuilder& out);

void ReprItems(const std::vector<Value>& items, int depth, TextBuilder& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Add(", ");
    ReprInto(items[i], depth, out);
  }
}

template <class Pairs, class Key>
void ReprPairs(const Pairs& pairs, int depth, TextBuilder& out, const Key& key) {
  out.Add('{');
  bool first = true;
  for (const auto& [name, item] : pairs) {
    if (!first) out.Add(", ");
    first = false;
    key(name);
    out.Add(": ");
    ReprInto(item, depth, out);
  }
  out.Add('}');
}

void ReprNumber(const Value& value, TextBuilder& out) {
  if (value.Is(Kind::kBool)) {
    out.Add(value.integer() != 0 ? "True" : "False");
  } else if (value.Is(Kind::kInt)) {
    out.Add(std::to_string(value.integer()));
  } else {
    out.Add(FloatText(value.number()));
  }
}

void ReprInto(const Value& value, int depth, TextBuilder& out) {
  Meter::Step();
  if (depth > kMostPrinted) {
    Fail(FaultKind::kLimit, StrCat("a value nested more than ", kMostPrinted, " deep is printed"));
  }
  switch (value.kind()) {
    case Kind::kUndefined:
      return out.Add("Undefined");
    case Kind::kNone:
      return out.Add("None");
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return ReprNumber(value, out);
    case Kind::kString:
      if (value.safe()) out.Add("Markup(");
      ReprText(value.str(), out);
      if (value.safe()) out.Add(')');
      return;
    case Kind::kList:
      out.Add('[');
      ReprItems(value.items(), depth + 1, out);
      return out.Add(']');
    case Kind::kTuple:
      out.Add('(');
      ReprItems(value.items(), depth + 1, out);
      return out.Add(value.items().size() == 1 ? ",)" : ")");
    case Kind::kDict:
      return ReprPairs(value.as<DictObject>().items(), depth + 1, out,
                       [&](const Value& key) { ReprInto(key, depth + 1, out); });
    case Kind::kRange: {
      const auto& range = value.as<RangeObject>();
      out.Add(StrCat("range(", range.start, ", ", range.stop,
                     range.step == 1 ? "" : StrCat(", ", range.step), ")"));
      return;
    }
    case Kind::kView:
      out.Add(TypeName(value));
      out.Add("([");
      ReprItems(Listed(value).items(), depth + 1, out);
      return out.Add("])");
    case Kind::kNamespace:
      out.Add("<Namespace ");
      ReprPairs(value.as<NamespaceObject>().attributes, depth + 1, out,
                [&](const std::string& key) { ReprText(key, out); });
      return out.Add('>');
    case Kind::kLoop: {
      const auto& loop = value.as<LoopObject>();
      out.Add(StrCat("<LoopContext ", loop.index0 + 1, "/", loop.length(), ">"));
      return;
    }
    default:
      Fail(FaultKind::kUnsupported,
           StrCat("a ", TypeName(value), " is printed; Python prints its address in memory"));
  }
}

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer = {};
  // The shortest digits that read back: "-1.25e+00".
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific)
                       .ptr;
  const std::string_view text(buffer.data(), static_cast<size_t>(end - buffer.data()));
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.data() + e + 1);
  if (exponent < -4 || exponent >= 16) return std::string(text);
  std::string digits, sign;
  for (const char c : text.substr(0, e)) {
    if (c == '-') {
      sign = "-";
    } else if (c != '.') {
      digits += c;
    }
  }
  if (exponent < 0)
    return StrCat(sign, "0.", std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) {
    return StrCat(sign, digits, std::string(whole - digits.size(), '0'), ".0");
  }
  return StrCat(sign, digits.substr(0, whole), ".", digits.substr(whole));
}

void AppendText(const Value& value, TextBuilder& out) {
  if (value.text()) {
    out.Add(value.str());
  } else if (!value.undefined()) {
    ReprInto(value, 0, out);
  }
}

std::string ToText(const Value& value) {
  if (value.text()) return value.str();
  TextBuilder out;
  AppendText(value, out);
  return out.Take();
}

std::string Repr(const Value& value) {
  TextBuilder out;
  ReprInto(value, 0, out);
  return out.Take();
}

}  // namespace kvgauge::jinja
