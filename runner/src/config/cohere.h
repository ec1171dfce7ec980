// SPDX-License-Identifier: Apache-2.0
// What the readers of Cohere's families share.
#pragma once

#include "src/config/common.h"

namespace kvgauge {

// All but the rope, the windows and the norms of queries and keys.
void ReadCohereParts(ConfigReader& reader, ModelConfig& config);

}  // namespace kvgauge
