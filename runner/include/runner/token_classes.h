// SPDX-License-Identifier: Apache-2.0
// The classes of the tokens of a vocabulary. Immutable, safe to share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "methods/layer_view.h"
#include "methods/probe.h"

namespace kvgauge {

class Tokenizer;

class TokenClasses {
 public:
  explicit TokenClasses(int64_t vocab_size) : bits_(static_cast<size_t>(vocab_size)) {}

  // Ids beyond the vocabulary, and embeddings without an id, have no class.
  bool Has(int32_t id, TokenClass wanted) const {
    const auto at = static_cast<size_t>(id);
    return id >= 0 && at < bits_.size() && (bits_[at] >> static_cast<int>(wanted) & 1) != 0;
  }
  // Precondition: id is of the vocabulary.
  void Set(int32_t id, TokenClass of) {
    bits_[static_cast<size_t>(id)] |= static_cast<uint8_t>(1 << static_cast<int>(of));
  }

 private:
  std::vector<uint8_t> bits_;  // by id
};

// Classifies each token by the text that it decodes to alone.
std::shared_ptr<const TokenClasses> ClassifyTokens(const Tokenizer& tokenizer);
// For ModelOptions::encode; it keeps the tokenizer.
TextEncoder EncoderOf(std::shared_ptr<const Tokenizer> tokenizer);

// What ids spell, special tokens included. For ModelOptions::spell; it keeps the tokenizer, too.
using TextSpeller = std::function<std::string(std::span<const int32_t>)>;
TextSpeller SpellerOf(std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace kvgauge
