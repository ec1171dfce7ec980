// SPDX-License-Identifier: Apache-2.0
#include "core/params.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

std::string TypeName(const ParamSpec& spec) {
  switch (spec.default_value.index()) {
    case 0:
      return "bool";
    case 1:
      return "int";
    case 2:
      return "real";
    default:
      return spec.choices.empty() ? "text" : "choice";
  }
}

std::string Number(double value) {
  Json number = value;
  if (value == std::floor(value) && std::abs(value) < 1e15) number = static_cast<int64_t>(value);
  return number.dump();
}

std::string ValueText(const ParamValue& value) {
  switch (value.index()) {
    case 0:
      return std::get<bool>(value) ? "true" : "false";
    case 1:
      return std::to_string(std::get<int64_t>(value));
    case 2:
      return Number(std::get<double>(value));
    default:
      return StrCat("'", std::get<std::string>(value), "'");
  }
}

// "[0, 64]", ">= 0", "one of 'a', 'b'", or "".
std::string RangeText(const ParamSpec& spec) {
  if (!spec.choices.empty()) return StrCat("one of '", Join(spec.choices, "', '"), "'");
  if (spec.default_value.index() != 1 && spec.default_value.index() != 2) return "";
  const bool low = std::isfinite(spec.least), high = std::isfinite(spec.most);
  if (low && high) return StrCat("in [", Number(spec.least), ", ", Number(spec.most), "]");
  if (low) return StrCat(">= ", Number(spec.least));
  if (high) return StrCat("<= ", Number(spec.most));
  return "";
}

Result<ParamValue> Convert(const ParamSpec& spec, const Json& given, std::string_view owner) {
  const auto wrong = [&]() -> Error {
    return BadInput(StrCat(owner, ".", spec.name, ": ",
                           given.dump(-1, ' ', false, Json::error_handler_t::replace),
                           " is not valid; expected ", DescribeParam(spec)));
  };
  switch (spec.default_value.index()) {
    case 0:
      if (!given.is_boolean()) return wrong();
      return ParamValue(given.get<bool>());
    case 1: {
      if (!given.is_number_integer()) return wrong();
      if (given.is_number_unsigned() && given.get<uint64_t>() > INT64_MAX) return wrong();
      const auto value = given.get<int64_t>();
      if (static_cast<double>(value) < spec.least || static_cast<double>(value) > spec.most) {
        return wrong();
      }
      return ParamValue(value);
    }
    case 2: {
      if (!given.is_number()) return wrong();
      const auto value = given.get<double>();
      if (!(value >= spec.least && value <= spec.most)) return wrong();
      return ParamValue(value);
    }
    default: {
      if (!given.is_string()) return wrong();
      auto value = given.get<std::string>();
      if (!spec.choices.empty() &&
          std::find(spec.choices.begin(), spec.choices.end(), value) == spec.choices.end()) {
        return wrong();
      }
      return ParamValue(std::move(value));
    }
  }
}

}  // namespace

ParamSpec BoolParam(std::string name, bool default_value, std::string help) {
  ParamSpec spec;
  spec.name = std::move(name);
  spec.default_value = default_value;
  spec.help = std::move(help);
  return spec;
}

ParamSpec IntParam(std::string name, int64_t default_value, int64_t least, int64_t most,
                   std::string help) {
  ParamSpec spec;
  spec.name = std::move(name);
  spec.default_value = default_value;
  spec.least = static_cast<double>(least);
  spec.most = static_cast<double>(most);
  spec.help = std::move(help);
  return spec;
}

ParamSpec RealParam(std::string name, double default_value, double least, double most,
                    std::string help) {
  ParamSpec spec;
  spec.name = std::move(name);
  spec.default_value = default_value;
  spec.least = least;
  spec.most = most;
  spec.help = std::move(help);
  return spec;
}

ParamSpec ChoiceParam(std::string name, std::string default_value, std::vector<std::string> choices,
                      std::string help) {
  ParamSpec spec;
  spec.name = std::move(name);
  spec.default_value = std::move(default_value);
  spec.choices = std::move(choices);
  spec.help = std::move(help);
  return spec;
}

Result<Params> Params::Parse(const std::vector<ParamSpec>& specs, const Json& given,
                             std::string_view owner) {
  if (!given.is_null() && !given.is_object()) {
    return BadInput(StrCat(owner, ": parameters must be a JSON object"));
  }
  Params params;
  std::vector<std::string> names;
  for (const ParamSpec& spec : specs) {
    names.push_back(spec.name);
    params.values_[spec.name] = spec.default_value;
  }
  if (given.is_null()) return params;
  for (const auto& [key, value] : given.items()) {
    const auto spec = std::find_if(specs.begin(), specs.end(),
                                   [&name = key](const ParamSpec& s) { return s.name == name; });
    if (spec == specs.end()) {
      return BadInput(
          StrCat(owner, ": unknown parameter ", Quoted(key), DidYouMean(key, names),
                 names.empty() ? "; it takes none" : StrCat("; known: ", Join(names, ", "))));
    }
    KVG_ASSIGN(params.values_[key], Convert(*spec, value, owner));
  }
  return params;
}

const ParamValue& Params::At(std::string_view name) const {
  const auto found = values_.find(name);
  KVG_CHECK(found != values_.end(), StrCat("parameter not declared: ", name));
  return found->second;
}

bool Params::Bool(std::string_view name) const { return std::get<bool>(At(name)); }
int64_t Params::Int(std::string_view name) const { return std::get<int64_t>(At(name)); }
double Params::Real(std::string_view name) const { return std::get<double>(At(name)); }
const std::string& Params::Text(std::string_view name) const {
  return std::get<std::string>(At(name));
}

Json Params::ToJson() const {
  Json out = Json::object();
  for (const auto& [name, value] : values_) {
    std::visit([&, &key = name](const auto& v) { out[key] = v; }, value);
  }
  return out;
}

std::string DescribeParam(const ParamSpec& spec) {
  const std::string range = RangeText(spec);
  return StrCat(TypeName(spec), range.empty() ? "" : " ", range, ", default ",
                ValueText(spec.default_value));
}

}  // namespace kvgauge
