// SPDX-License-Identifier: Apache-2.0
// Data sets see a tokenizer through this: what stands in a document is never a control token.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/text_codec.h"
#include "runner/tokenizer.h"

namespace kvgauge {

// The tokenizer must outlive it.
class TokenizerCodec final : public TextCodec {
 public:
  explicit TokenizerCodec(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  Result<std::vector<int32_t>> Encode(std::string_view text, bool add_special) const override {
    return tokenizer_.Encode(text, {.add_special = add_special, .parse_special = false});
  }
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const override {
    return tokenizer_.Decode(ids, skip_special);
  }

 private:
  const Tokenizer& tokenizer_;
};

}  // namespace kvgauge
