// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "src/text/jinja/ast.h"

namespace kvgauge::jinja {

// Throws a Fault with the line. `source` is well-formed UTF-8.
Document ParseDocument(std::string_view source);

}  // namespace kvgauge::jinja
