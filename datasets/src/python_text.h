// SPDX-License-Identifier: Apache-2.0
// String operations of the Python reference code that differ from their obvious C++ twins.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/json_fwd.h"

namespace kvgauge {

// Bytes of the white space character that the text begins with; 0: it begins with none.
size_t BlankLength(std::string_view text);

// str.strip(): all of Unicode's white space, and the separators U+001C to U+001F.
std::string_view PythonStrip(std::string_view text);

// text.replace(from, to): left to right, what was put in is not read again.
std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to);

// A text as it is, a number or a truth value as str() has it; nothing for anything else.
std::optional<std::string> PythonScalar(const Json& value);

}  // namespace kvgauge
