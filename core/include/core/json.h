// SPDX-License-Identifier: Apache-2.0
// JSON in and out. Include this in .cpp files; headers need only core/json_fwd.h.
//
// Parsing is strict where foreign files lie: duplicate keys, text after the value, ill-formed UTF-8
// and nesting deeper than kMaxJsonDepth are errors that name the origin and the byte.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/json_fwd.h"
#include "core/result.h"

namespace kvgauge {

inline constexpr int kMaxJsonDepth = 256;

// `origin` is the file name used in messages.
Result<Json> ParseJson(std::string_view text, std::string_view origin);
Result<Json> ReadJsonFile(const std::string& path);

// One spelling per value: sorted keys, no blanks, shortest numbers. What cell keys hash.
std::string CanonicalJson(const Json& value);

}  // namespace kvgauge
