// SPDX-License-Identifier: Apache-2.0
// JSON values in messages.
#pragma once

#include <string>

#include "core/json_fwd.h"

namespace kvgauge {

// As CanonicalJson has it, cut where it is long.
std::string ShortJson(const Json& value);

}  // namespace kvgauge
