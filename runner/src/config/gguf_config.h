// SPDX-License-Identifier: Apache-2.0
// The metadata of a GGUF file as the config.json that the same checkpoint has elsewhere.
#pragma once

#include "core/json_fwd.h"
#include "core/result.h"
#include "src/checkpoint/gguf/file.h"

namespace kvgauge {

// Keys that change the forward pass and are not understood are errors that name them.
Result<Json> ConfigOfGguf(const GgufFile& file);

}  // namespace kvgauge
