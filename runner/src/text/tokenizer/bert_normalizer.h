// SPDX-License-Identifier: Apache-2.0
// What Hugging Face's BertNormalizer does to a text.
#pragma once

#include <memory>
#include <string>

#include "src/text/tokenizer/normalizer.h"

namespace kvgauge {

// `json`: its object in tokenizer.json.
Result<std::unique_ptr<NormalizerStep>> ParseBertNormalizer(const Json& json,
                                                            const std::string& where);

}  // namespace kvgauge
