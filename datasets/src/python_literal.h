// SPDX-License-Identifier: Apache-2.0
// Some published files hold Python literals where JSON would do.
#pragma once

#include <string_view>

#include "core/json.h"
#include "core/result.h"

namespace kvgauge {

// Strings in either quotes with their escapes, numbers, True, False, None, lists, tuples (as
// arrays) and dictionaries with string keys. Nothing is evaluated. Messages name the byte.
Result<Json> ParsePythonLiteral(std::string_view text);

}  // namespace kvgauge
