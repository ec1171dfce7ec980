// SPDX-License-Identifier: Apache-2.0
// Tokens that are cut out of the text before the model sees it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/tokenizer/byte_trie.h"

namespace kvgauge {

struct AddedToken {
  int32_t id = 0;
  std::string content = {};
  bool special = false;
  bool normalized = true;    // looked for after normalisation, in its own normalised form
  bool single_word = false;  // not where a word character touches it
  bool lstrip = false;       // takes the white space on that side with it
  bool rstrip = false;
  bool in_texts = true;  // false: no text that spells it holds it
};

// A stretch of text, or the token that stood there.
struct Segment {
  size_t begin, end;
  int32_t id;  // -1: text
};

// What \w is to the library that defined `single_word`. Precondition: one whole character.
bool IsWordCharacter(std::string_view character);

// Finds one group of added tokens, leftmost first and the longest of those. Immutable once filled.
class AddedTokenFinder {
 public:
  // `pattern`: the spelling to look for. If two are equal, the first counts.
  void Add(const AddedToken& token, std::string_view pattern);
  bool empty() const { return tokens_.empty(); }
  // Appends the segments of `text`, in order and never empty. Without `take_special`, special
  // tokens stay text. Precondition: well-formed text.
  void Cut(std::string_view text, bool take_special, std::vector<Segment>& out) const;

 private:
  struct Match {
    size_t end;
    int32_t token;  // index into tokens_, -1: none
  };
  Match LongestAt(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;
  std::array<bool, 256> begins_ = {};  // bytes that some pattern begins with
};

}  // namespace kvgauge
