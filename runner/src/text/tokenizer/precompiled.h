// SPDX-License-Identifier: Apache-2.0
// The normalizer "Precompiled": a table of SentencePiece that replaces characters, as Hugging Face
// applies it.
#pragma once

#include <memory>
#include <string>

#include "src/text/tokenizer/normalizer.h"

namespace kvgauge {

// `json`: its object in tokenizer.json.
Result<std::unique_ptr<NormalizerStep>> ParsePrecompiled(const Json& json,
                                                         const std::string& where);

}  // namespace kvgauge
