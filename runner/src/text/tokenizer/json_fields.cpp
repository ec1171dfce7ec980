// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/json_fields.h"

#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {

const Json* Member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Error WrongValue(std::string_view where, std::string_view key, const Json& value,
                 std::string_view wanted) {
  return BadInput(
      StrCat(where, ".", key, " is ", CanonicalJson(value).substr(0, 80), "; ", wanted));
}

Result<std::string> StringField(const Json& object, std::string_view key, std::string_view where) {
  const Json* member = Member(object, key);
  if (member == nullptr) return BadInput(StrCat(where, ".", key, " is missing; it is a string"));
  if (!member->is_string()) return WrongValue(where, key, *member, "it must be a string");
  return member->get<std::string>();
}

Result<int64_t> IntField(const Json& object, std::string_view key, std::string_view where) {
  const Json* member = Member(object, key);
  if (member == nullptr) return BadInput(StrCat(where, ".", key, " is missing; it is an integer"));
  const bool fits = member->is_number_integer() &&
                    (!member->is_number_unsigned() || member->get<uint64_t>() <= INT64_MAX);
  if (!fits) return WrongValue(where, key, *member, "it must be an integer");
  return member->get<int64_t>();
}

Result<bool> BoolField(const Json& object, std::string_view key, bool default_value,
                       std::string_view where) {
  const Json* member = Member(object, key);
  if (member == nullptr) return default_value;
  if (!member->is_boolean()) return WrongValue(where, key, *member, "it must be true or false");
  return member->get<bool>();
}

Result<std::string> TokenField(const Json& object, std::string_view key, std::string_view where) {
  const Json* member = Member(object, key);
  if (member == nullptr) return std::string();
  if (member->is_string()) return member->get<std::string>();
  if (member->is_object()) return StringField(*member, "content", StrCat(where, ".", key));
  return WrongValue(where, key, *member, "it must be a string or an object with \"content\"");
}

Status CheckSteps(size_t steps, int depth, std::string_view where) {
  constexpr size_t kMostSteps = 64;
  constexpr int kMostDepth = 16;
  if (depth <= kMostDepth && steps < kMostSteps) return {};
  return Unsupported(
      StrCat(where, ": more than ", kMostSteps, " steps or ", kMostDepth, " nested sequences"));
}

}  // namespace kvgauge
