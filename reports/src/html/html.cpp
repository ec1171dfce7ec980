// SPDX-License-Identifier: Apache-2.0
#include "src/html/html.h"

#include <charconv>
#include <cmath>

#include "core/check.h"
#include "src/html/visible.h"

namespace kvgauge::report {

void AppendNumber(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out.append(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    return;
  }
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::general, 6);
  out.append(buffer, end.ptr);
}

void AppendLength(std::string& out, double value) {
  const auto tenths = static_cast<int64_t>(std::llround(std::isfinite(value) ? value * 10 : 0));
  const int64_t size = std::abs(tenths);
  if (tenths < 0) out.push_back('-');
  char buffer[24];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), size / 10).ptr);
  if (size % 10 != 0) {
    out.push_back('.');
    out.push_back(static_cast<char>('0' + size % 10));
  }
}

void AppendEscaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '&':
        out.append("&amp;");
        break;
      case '<':
        out.append("&lt;");
        break;
      case '>':
        out.append("&gt;");
        break;
      case '"':
        out.append("&quot;");
        break;
      case '\'':
        out.append("&#39;");
        break;
      default:
        out.push_back(c);
    }
  }
}

void AppendScriptString(std::string& out, std::string_view text) {
  out.push_back('"');
  for (const char c : text) {
    switch (c) {
      case '"':
        out.append("\\\"");
        break;
      case '\\':
        out.append("\\\\");
        break;
      case '\n':
        out.append("\\n");
        break;
      case '\t':
        out.append("\\t");
        break;
      case '<':
        out.append("\\u003c");
        break;
      case '>':
        out.append("\\u003e");
        break;
      case '&':
        out.append("\\u0026");
        break;
      default:
        out.push_back(c);
    }
  }
  out.push_back('"');
}

std::string Base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = (group << 8) | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      out.push_back(i + k <= bytes.size() ? kDigits[(group >> (18 - 6 * k)) & 63] : '=');
    }
  }
  return out;
}

Html Breakable(std::string_view name) {
  constexpr std::string_view kSeparators = "_=,./";
  Html html;
  while (!name.empty()) {
    const size_t at = name.find_first_of(kSeparators);
    const size_t end = at == std::string_view::npos ? name.size() : at + 1;
    html.Text(name.substr(0, end));
    name.remove_prefix(end);
    // ", " breaks by itself, and what follows a last separator is nothing.
    if (!name.empty() && name.front() != ' ') html.Put("<wbr>");
  }
  return html;
}

Html& Html::Put(Markup markup, std::initializer_list<Value> values) {
  const std::string_view text = markup.text();
  size_t from = 0;
  for (const Value& value : values) {
    const size_t at = text.find("{}", from);
    KVG_CHECK(at != std::string_view::npos, "more values than places in the markup");
    text_.append(text.substr(from, at - from));
    Append(value);
    from = at + 2;
  }
  KVG_CHECK(text.find("{}", from) == std::string_view::npos, "a place without a value");
  text_.append(text.substr(from));
  return *this;
}

Html& Html::Put(const Html& html) {
  text_.append(html.text_);
  return *this;
}

Html& Html::Text(std::string_view text) {
  AppendEscaped(text_, MakeVisible(text));
  return *this;
}

Html& Html::PutData(std::string_view id, std::string_view json) {
  KVG_CHECK(json.find('<') == std::string_view::npos, "data that could end its block");
  Put(R"(<script type="application/json" id="{}">)", {id});
  text_.append(json);
  return Put("</script>\n");
}

void Html::Append(const Value& value) {
  switch (value.kind_) {
    case Value::Kind::kText:
      Text(value.text_);
      break;
    case Value::Kind::kHtml:
      text_.append(value.text_);
      break;
    case Value::Kind::kInteger:
      text_.append(std::to_string(value.integer_));
      break;
    case Value::Kind::kReal:
      AppendNumber(text_, value.real_);
      break;
    case Value::Kind::kLength:
      AppendLength(text_, value.real_);
      break;
  }
}

}  // namespace kvgauge::report
