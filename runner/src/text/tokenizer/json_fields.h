// SPDX-License-Identifier: Apache-2.0
// Typed reading of JSON objects whose errors name the place, the key and the value found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "core/json_fwd.h"
#include "core/result.h"

namespace kvgauge {

// The member, or null when it is absent or JSON null. Precondition: any JSON value.
const Json* Member(const Json& object, std::string_view key);

// `where` is the place of `object`: "dir/tokenizer.json: model".
Result<std::string> StringField(const Json& object, std::string_view key, std::string_view where);
Result<int64_t> IntField(const Json& object, std::string_view key, std::string_view where);
// Absent and null give the default.
Result<bool> BoolField(const Json& object, std::string_view key, bool default_value,
                       std::string_view where);

// "where.key is <value>; <wanted>".
Error WrongValue(std::string_view where, std::string_view key, const Json& value,
                 std::string_view wanted);

// The text of a special token: a string, or an object with "content"; "" when absent or null.
Result<std::string> TokenField(const Json& object, std::string_view key, std::string_view where);

// Checks a list of steps that may hold lists: an error where a file asks for more than any real one
// has.
Status CheckSteps(size_t steps, int depth, std::string_view where);

}  // namespace kvgauge
