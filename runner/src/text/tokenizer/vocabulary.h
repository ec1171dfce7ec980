// SPDX-License-Identifier: Apache-2.0
// Token spellings and ids, and the alphabet in which byte-level vocabularies spell bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

class Vocabulary {
 public:
  // Fails when the id is negative, out of all proportion to the number of tokens, or another
  // token's. The same pair again is fine. `expected`: how many tokens the file holds.
  Status Add(std::string_view text, int64_t id, size_t expected, std::string_view where);
  // Makes room for so many tokens.
  void Reserve(size_t count);

  std::optional<int32_t> Find(std::string_view text) const;
  // "" for gaps and ids out of range.
  const std::string& TextOf(int32_t id) const;
  bool Has(int32_t id) const;
  int64_t size() const { return static_cast<int64_t>(texts_.size()); }  // highest id + 1

 private:
  Status CheckId(std::string_view text, int64_t id, size_t expected, std::string_view where) const;
  void Put(std::string_view text, int32_t id);

  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;
  std::vector<std::string> texts_;
  std::vector<bool> present_;
};

// GPT-2's spelling of bytes: printable ones as themselves, the other 68 from U+0100 on.
char32_t ByteToAlphabet(uint8_t byte);
std::string BytesToAlphabet(std::string_view bytes);
// The bytes, or nothing when a character lies outside the alphabet.
std::optional<std::string> AlphabetToBytes(std::string_view text);

// The byte that a token of the form <0xHH> stands for.
std::optional<uint8_t> ByteOfFallbackToken(std::string_view token);
std::string FallbackToken(uint8_t byte);

}  // namespace kvgauge
