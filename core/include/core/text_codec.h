// SPDX-License-Identifier: Apache-2.0
// A tokenizer as rooms see it that must not know tokenizers: data sets control lengths and truncate
// on the model's own tokens through this.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace kvgauge {

class TextCodec {
 public:
  virtual ~TextCodec() = default;
  // `add_special`: with the BOS/EOS that the checkpoint's tokenizer adds. Special tokens written in
  // `text` stay text: data must not inject control tokens.
  virtual Result<std::vector<int32_t>> Encode(std::string_view text, bool add_special) const = 0;
  virtual std::string Decode(std::span<const int32_t> ids, bool skip_special) const = 0;
};

}  // namespace kvgauge
