// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvgauge {

// The bytes of a text in base64 with its padding; nothing where it is none, or empty.
std::optional<std::string> FromBase64(std::string_view text);

}  // namespace kvgauge
