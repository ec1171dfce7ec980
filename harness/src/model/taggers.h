// SPDX-License-Identifier: Apache-2.0
// Trained encoders that stages ask about texts (methods/token_tagger.h): found, checked, loaded.
#pragma once

#include <span>

#include "core/result.h"
#include "kernels/ops.h"
#include "methods/method.h"

namespace kvgauge {

// Looks at the encoders that stages name, as they are or beside configs/; reads no weight but for
// fingerprints.
Status AttachTaggers(Method& method);

// Loads those of all methods, each once. They run on `ops`, which outlives them.
Result<Taggers> LoadTaggers(std::span<const Method* const> methods, Ops& ops);

}  // namespace kvgauge
