// SPDX-License-Identifier: Apache-2.0
// JSON in and out of the template engine.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/json.h"
#include "core/strings.h"
#include "src/text/jinja/functions.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge::jinja {
namespace {

constexpr int kMostJsonText = 250;

void EscapeCode(char32_t code, TextBuilder& out) {
  std::array<char, 16> buffer = {};
  std::snprintf(buffer.data(), buffer.size(), "\\u%04x", static_cast<unsigned>(code));
  out.Add(buffer.data());
}

void WriteText(const std::string& text, bool ascii, TextBuilder& out) {
  out.Add('"');
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    const auto byte = static_cast<char>(c.value);
    if (c.value == '"' || c.value == '\\') {
      out.Add('\\');
      out.Add(byte);
    } else if (c.value < 0x20) {
      constexpr std::string_view kPlain = "\b\f\n\r\t", kMeans = "bfnrt";
      const size_t known = kPlain.find(byte);
      if (known == std::string_view::npos) {
        EscapeCode(c.value, out);
      } else {
        out.Add('\\');
        out.Add(kMeans[known]);
      }
    } else if (ascii && c.value >= 0x10000) {
      EscapeCode(0xd7c0 + (c.value >> 10), out);
      EscapeCode(0xdc00 + (c.value & 0x3ff), out);
    } else if (ascii && c.value > 0x7e) {
      EscapeCode(c.value, out);
    } else {
      out.Add(std::string_view(text).substr(at, c.width));
    }
    at += c.width;
  }
  out.Add('"');
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void Write(const Value& value, int depth) {
    Meter::Step();
    if (depth > kMostJsonText) {
      Fail(FaultKind::kLimit, StrCat("tojson of values nested more than ", kMostJsonText, " deep"));
    }
    switch (value.kind()) {
      case Kind::kNone:
        return out_.Add("null");
      case Kind::kBool:
        return out_.Add(value.integer() != 0 ? "true" : "false");
      case Kind::kInt:
        return out_.Add(std::to_string(value.integer()));
      case Kind::kFloat:
        return out_.Add(Number(value.number()));
      case Kind::kString:
        return WriteText(value.str(), style_.ascii, out_);
      case Kind::kList:
      case Kind::kTuple:
        return WriteList(value.items(), depth);
      case Kind::kDict:
        return WriteDict(value.as<DictObject>(), depth);
      default:
        FailRuntime(StrCat("Object of type ", TypeName(value), " is not JSON serializable"));
    }
  }
  std::string Take() { return out_.Take(); }

 private:
  static std::string Number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatText(value);
  }

  void Break(int depth) {
    if (style_.indent < 0) return;
    out_.Add('\n');
    out_.Repeat(style_.indent_text, depth);
  }

  void WriteList(const std::vector<Value>& items, int depth) {
    if (items.empty()) return out_.Add("[]");
    out_.Add('[');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Add(style_.item_separator);
      Break(depth + 1);
      Write(items[i], depth + 1);
    }
    Break(depth);
    out_.Add(']');
  }

  static std::string Key(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return key.str();
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return key.integer() != 0 ? "true" : "false";
      case Kind::kInt:
        return std::to_string(key.integer());
      case Kind::kFloat:
        return Number(key.number());
      default:
        FailRuntime(StrCat("keys must be str, int, float, bool or None, not ", TypeName(key)));
    }
  }

  void WriteDict(const DictObject& dict, int depth) {
    if (dict.items().empty()) return out_.Add("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.items()) entries.push_back(&entry);
    if (style_.sorted) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return Less(a->first, b->first); });
    }
    out_.Add('{');
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.Add(style_.item_separator);
      Break(depth + 1);
      WriteText(Key(entries[i]->first), style_.ascii, out_);
      out_.Add(style_.key_separator);
      Write(entries[i]->second, depth + 1);
    }
    Break(depth);
    out_.Add('}');
  }

  const JsonStyle& style_;
  TextBuilder out_;
};

Value FromOrdered(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
      return Value::Int(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        Fail(FaultKind::kUnsupported, StrCat("the number ", json.dump(), " is beyond 64 bits"));
      }
      return Value::Int(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_float:
      return Value::Float(json.get<double>());
    case nlohmann::ordered_json::value_t::string:
      return Value::Text(json.get_ref<const std::string&>());
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(FromOrdered(item));
      return Value::List(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      auto* dict = new DictObject;
      Value made = Value::Of(Kind::kDict, dict);
      for (const auto& [key, item] : json.items()) dict->Set(Value::Text(key), FromOrdered(item));
      dict->Charge(128 + std::ssize(dict->items()) * 64);
      return made;
    }
    default:
      return Value::None();
  }
}

}  // namespace

std::string ToJson(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.Write(value, 0);
  return writer.Take();
}

Value FromJson(std::string_view text) {
  // The strict reader first: duplicate keys, depth, ill-formed text.
  const Result<Json> checked = ParseJson(text, "the values");
  if (!checked.ok()) FailRuntime(checked.error().message);
  return FromOrdered(nlohmann::ordered_json::parse(text));
}

}  // namespace kvgauge::jinja
