// SPDX-License-Identifier: Apache-2.0
// A shorter prompt of what a question asks for, for a draft that reads less than its judge.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvgauge {

struct Retrieval {
  int64_t chunk = 128;    // tokens; the last one has those that are left
  int64_t tokens = 4096;  // so many in chunks, or the prompt's over `shorten`, if that is more
  int64_t shorten = 32;
  int64_t first = 4;      // tokens that are always read, such as those of a template
  int64_t question = 64;  // last tokens, likewise; they ask

  std::string ToString() const;  // "tokens=4096 chunk=128 ..."
};

// The first tokens, the chunks between that score best by BM25 (Okapi, k1 1.5, b 0.75, token ids as
// words, the last tokens as the query; of equal ones the first), and the last tokens, as they
// stand in the prompt.
std::vector<int32_t> RetrievedPrompt(std::span<const int32_t> prompt, const Retrieval& retrieval);

}  // namespace kvgauge
