// SPDX-License-Identifier: Apache-2.0
#include "src/config/config_reader.h"

#include <cmath>
#include <utility>

#include "core/check.h"
#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

std::string Shown(const Json* value) {
  if (value == nullptr) return "absent";
  // Long values would bury the message.
  const std::string text = CanonicalJson(*value);
  return text.size() <= 80 ? text : StrCat(text.substr(0, 77), "...");
}

std::string Range(int64_t least, int64_t most) {
  return StrCat("an integer from ", least, " to ", most);
}

std::string Range(double least, double most) {
  return StrCat("a number from ", least, " to ", most);
}

// Integers that fit int64; a float is not an integer even when it is whole.
std::optional<int64_t> AsInt(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

bool InRange(double value, double least, double most) {
  return std::isfinite(value) && least <= value && value <= most;
}

}  // namespace

ConfigReader::ConfigReader(const Json& object, std::string origin, std::string scope)
    : object_(object), origin_(std::move(origin)), scope_(std::move(scope)) {
  KVG_CHECK(object.is_object(), "a config reader needs an object");
}

ConfigReader::Presence ConfigReader::PresenceOf(std::string_view key) const {
  const auto found = object_.find(key);
  if (found == object_.end()) return Presence::kAbsent;
  return found->is_null() ? Presence::kNull : Presence::kValue;
}

const Json* ConfigReader::Find(std::string_view key) {
  taken_.emplace(key);
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

const Json* ConfigReader::Take(std::string_view key) {
  const Json* value = Find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool ConfigReader::CheckPresent(std::string_view key, const Json* value, bool has_fallback) {
  if (value != nullptr && !value->is_null()) return true;
  if (!has_fallback) {
    Fail(BadInput(StrCat(origin_, ": key '", NameOfKey(key), "' is ",
                         value == nullptr ? "missing" : "null", ", and it has no default")));
  }
  return false;
}

int64_t ConfigReader::Int(std::string_view key, std::optional<int64_t> fallback, int64_t least,
                          int64_t most) {
  const Json* value = Find(key);
  if (!CheckPresent(key, value, fallback.has_value())) return fallback.value_or(least);
  const std::optional<int64_t> number = AsInt(*value);
  if (!number || *number < least || *number > most) {
    Fail(key, Range(least, most));
    return fallback.value_or(least);
  }
  return *number;
}

double ConfigReader::Real(std::string_view key, std::optional<double> fallback, double least,
                          double most) {
  const Json* value = Find(key);
  if (!CheckPresent(key, value, fallback.has_value())) return fallback.value_or(least);
  if (!value->is_number() || !InRange(value->get<double>(), least, most)) {
    Fail(key, Range(least, most));
    return fallback.value_or(least);
  }
  return value->get<double>();
}

bool ConfigReader::Bool(std::string_view key, bool fallback) {
  const Json* value = Find(key);
  if (!CheckPresent(key, value, true)) return fallback;
  if (!value->is_boolean()) {
    Fail(key, "true or false");
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigReader::Text(std::string_view key, std::string_view fallback) {
  const Json* value = Find(key);
  if (!CheckPresent(key, value, true)) return std::string(fallback);
  if (!value->is_string()) {
    Fail(key, "a string");
    return std::string(fallback);
  }
  return value->get<std::string>();
}

std::vector<double> ConfigReader::Reals(std::string_view key, double least, double most) {
  std::vector<double> numbers;
  const Json* value = Take(key);
  if (value == nullptr) return numbers;
  bool legal = value->is_array();
  if (legal) {
    for (const Json& entry : *value) {
      legal = legal && entry.is_number() && InRange(entry.get<double>(), least, most);
      if (legal) numbers.push_back(entry.get<double>());
    }
  }
  if (!legal) Fail(key, StrCat("a list, each entry ", Range(least, most)));
  return numbers;
}

std::vector<std::string> ConfigReader::Texts(std::string_view key) {
  std::vector<std::string> texts;
  const Json* value = Take(key);
  if (value == nullptr) return texts;
  bool legal = value->is_array();
  if (legal) {
    for (const Json& entry : *value) {
      legal = legal && entry.is_string();
      if (legal) texts.push_back(entry.get<std::string>());
    }
  }
  if (!legal) Fail(key, "a list of strings");
  return texts;
}

std::vector<int64_t> ConfigReader::IntOrInts(std::string_view key, int64_t least, int64_t most) {
  std::vector<int64_t> numbers;
  const Json* value = Take(key);
  if (value == nullptr) return numbers;
  bool legal = true;
  const auto add = [&](const Json& entry) {
    const std::optional<int64_t> number = AsInt(entry);
    legal = legal && number && least <= *number && *number <= most;
    if (legal) numbers.push_back(*number);
  };
  if (value->is_array()) {
    for (const Json& entry : *value) add(entry);
  } else {
    add(*value);
  }
  if (!legal) Fail(key, StrCat(Range(least, most), ", or a list of such"));
  return numbers;
}

void ConfigReader::Neutral(std::string_view key, bool neutral) {
  const Json* value = Take(key);
  if (value == nullptr || (value->is_boolean() && value->get<bool>() == neutral)) return;
  Fail(key, neutral ? "true: this model family is implemented no other way"
                    : "false: this model family is implemented no other way");
}

void ConfigReader::Neutral(std::string_view key, int64_t neutral) {
  const Json* value = Take(key);
  // 0 and 0.0 are both written for dropouts and the like.
  if (value == nullptr ||
      (value->is_number() && value->get<double>() == static_cast<double>(neutral))) {
    return;
  }
  Fail(key, StrCat(neutral, ": this model family is implemented no other way"));
}

void ConfigReader::Neutral(std::string_view key, std::string_view neutral) {
  const Json* value = Take(key);
  if (value == nullptr || (value->is_string() && value->get<std::string>() == neutral)) return;
  Fail(key, StrCat("'", neutral, "': this model family is implemented no other way"));
}

void ConfigReader::Refuse(std::string_view key, std::string_view why) {
  if (Take(key) == nullptr) return;
  Fail(Unsupported(StrCat(origin_, ": key '", NameOfKey(key), "': ", Shown(Take(key)), ": ", why)));
}

void ConfigReader::Ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) taken_.emplace(key);
}

void ConfigReader::Fail(std::string_view key, std::string_view expected) {
  Fail(BadInput(StrCat(origin_, ": key '", NameOfKey(key), "': ", Shown(Find(key)), ", expected ",
                       expected)));
}

void ConfigReader::Fail(Error error) {
  if (!fault_) fault_ = std::move(error);
}

std::string ConfigReader::NameOfKey(std::string_view key) const { return StrCat(scope_, key); }

Status ConfigReader::Finish() {
  if (fault_) return *fault_;
  for (const auto& [key, value] : object_.items()) {
    if (value.is_null() || taken_.contains(key)) continue;
    const std::vector<std::string> known(taken_.begin(), taken_.end());
    return BadInput(StrCat(origin_, ": unknown key ", Quoted(StrCat(scope_, key)), ": ",
                           Shown(&value), DidYouMean(key, known),
                           "; it might change the forward pass, so the config is refused"));
  }
  return {};
}

}  // namespace kvgauge
