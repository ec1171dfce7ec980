// SPDX-License-Identifier: Apache-2.0
// Work that is done once for each character that a text holds, however often it holds it.
//
// Templates that were written for content parts go through a text character by character when a
// message is a plain text. What they do for one character depends on the character alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "src/text/jinja/ast.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge::jinja {

// Whether what the body of the loop prints depends on the item alone: it assigns nothing, calls
// nothing, goes through nothing and does not ask where the loop is. `loop`: that variable.
bool PrintsByItemAlone(const Node& loop_node, Symbol loop);

// Calls `visit` with each character of a text, as a text. UTF-8.
template <class Visit>
void ForEachCharacter(std::string_view text, const Visit& visit) {
  for (size_t at = 0; at < text.size();) {
    const size_t width = Utf8Width(text[at]);
    visit(text.substr(at, width));
    at += width;
  }
}

// What was found for each character so far.
template <class T>
class ByCharacter {
 public:
  // Null where the character is new. `character`: a text of one character.
  const T* Find(std::string_view character) const {
    if (character.size() == 1) {
      const std::optional<T>& known = ascii_[static_cast<uint8_t>(character[0]) % 128];
      return known ? &*known : nullptr;
    }
    const auto found = others_.find(std::string(character));
    return found == others_.end() ? nullptr : &found->second;
  }
  const T& Keep(std::string_view character, T value) {
    if (character.size() == 1) {
      return ascii_[static_cast<uint8_t>(character[0]) % 128].emplace(std::move(value));
    }
    return others_.emplace(std::string(character), std::move(value)).first->second;
  }

 private:
  std::array<std::optional<T>, 128> ascii_;
  std::unordered_map<std::string, T> others_;
};

}  // namespace kvgauge::jinja
