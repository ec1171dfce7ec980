// SPDX-License-Identifier: Apache-2.0
// How many tokens a cache held when its bytes were counted. That is not always the
// prompt: a question may come after compression, or an answer before it.
#pragma once

#include <cstdint>
#include <string>

namespace kvgauge {

// Bytes of one token in the uncompressed cache of a model, from the facts that the store holds of
// it; 0 where they do not tell.
double FullTokenBytes(const std::string& model_facts);
// Bytes of the states of constant size that a sequence has beside its cache; 0: there are none.
double StateBytes(const std::string& model_facts);

// `full_bytes` are those of the tokens uncompressed. Where the facts do not tell, the prompt's.
inline double HeldTokens(double full_bytes, double full_token_bytes, double tokens_in) {
  return full_token_bytes > 0 ? full_bytes / full_token_bytes : tokens_in;
}

}  // namespace kvgauge
