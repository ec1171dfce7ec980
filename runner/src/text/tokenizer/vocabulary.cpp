// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/vocabulary.h"

#include <array>

#include "core/strings.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge {
namespace {

constexpr char32_t kAlphabetEnd = 0x144;

bool IsOwnCharacter(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Alphabet {
  std::array<char32_t, 256> of_byte;
  std::array<int16_t, kAlphabetEnd> byte_of;

  Alphabet() {
    byte_of.fill(-1);
    char32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      of_byte[byte] = IsOwnCharacter(byte) ? byte : next++;
      byte_of[of_byte[byte]] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

Status Vocabulary::CheckId(std::string_view text, int64_t id, size_t expected,
                           std::string_view where) const {
  // Ids index tables; real files leave gaps of a few thousand at most.
  const int64_t limit = 16 * static_cast<int64_t>(expected) + 65536;
  if (id >= 0 && id < limit) return {};
  return BadInput(StrCat(where, ": token ", Quoted(text), " has id ", id,
                         "; ids of a vocabulary of ", expected, " tokens lie between 0 and ",
                         limit - 1));
}

void Vocabulary::Put(std::string_view text, int32_t id) {
  if (id >= size()) {
    texts_.resize(id + 1);
    present_.resize(id + 1);
  }
  texts_[id] = text;
  present_[id] = true;
}

Status Vocabulary::Add(std::string_view text, int64_t id, size_t expected, std::string_view where) {
  KVG_TRY(CheckId(text, id, expected, where));
  if (Has(static_cast<int32_t>(id))) {
    if (texts_[id] == text) return {};
    return BadInput(StrCat(where, ": id ", id, " is given to both ", Quoted(texts_[id]), " and ",
                           Quoted(text)));
  }
  const auto [entry, fresh] = ids_.emplace(text, static_cast<int32_t>(id));
  if (!fresh) {
    return BadInput(
        StrCat(where, ": token ", Quoted(text), " has both id ", entry->second, " and id ", id));
  }
  Put(text, static_cast<int32_t>(id));
  return {};
}

void Vocabulary::Reserve(size_t count) {
  ids_.reserve(count);
  texts_.reserve(count);
  present_.reserve(count);
}

std::optional<int32_t> Vocabulary::Find(std::string_view text) const {
  const auto found = ids_.find(text);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string& Vocabulary::TextOf(int32_t id) const {
  static const std::string empty;
  return Has(id) ? texts_[id] : empty;
}

bool Vocabulary::Has(int32_t id) const { return id >= 0 && id < size() && present_[id]; }

char32_t ByteToAlphabet(uint8_t byte) { return TheAlphabet().of_byte[byte]; }

std::string BytesToAlphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 4);
  for (const char c : bytes) AppendUtf8(out, ByteToAlphabet(static_cast<uint8_t>(c)));
  return out;
}

std::optional<std::string> AlphabetToBytes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    if (c.value >= kAlphabetEnd || TheAlphabet().byte_of[c.value] < 0) return std::nullopt;
    out += static_cast<char>(TheAlphabet().byte_of[c.value]);
    at += c.width;
  }
  return out;
}

std::optional<uint8_t> ByteOfFallbackToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = HexValue(token[3]), low = HexValue(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

std::string FallbackToken(uint8_t byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return StrCat("<0x", kDigits[byte >> 4], kDigits[byte & 15], ">");
}

}  // namespace kvgauge
