// SPDX-License-Identifier: Apache-2.0
// Forward declaration of the project's JSON type.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace kvgauge {
using Json = nlohmann::json;
}
