// SPDX-License-Identifier: Apache-2.0
// Texts that users give, which need not be UTF-8.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace kvgauge {

// `text` as UTF-8: each ill-formed stretch becomes U+FFFD, as Python's "replace" does it, and one
// warning says where the first one is and how many there are. `where`: the file or flag.
std::string WellFormed(std::string text, std::string_view where);
// The file, whole, and well-formed.
Result<std::string> ReadTextFile(const std::string& path);

}  // namespace kvgauge
