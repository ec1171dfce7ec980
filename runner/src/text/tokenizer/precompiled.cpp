// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/precompiled.h"

#include <utf8proc.h>

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/strings.h"
#include "src/text/tokenizer/base64.h"
#include "src/text/tokenizer/json_fields.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge {
namespace {

// Longer runs of one grapheme are replaced character by character.
constexpr size_t kWholeGraphemeBytes = 5;

// A double array, as darts-clone lays it out: keys to places in a list of texts.
class CharacterMap {
 public:
  // Nothing where the bytes are no such table.
  static std::optional<CharacterMap> From(const std::string& bytes) {
    uint32_t size = 0;
    if (bytes.size() < sizeof(size)) return std::nullopt;
    std::memcpy(&size, bytes.data(), sizeof(size));
    if (size == 0 || size % sizeof(uint32_t) != 0 || size > bytes.size() - sizeof(size)) {
      return std::nullopt;
    }
    CharacterMap map;
    map.units_.resize(size / sizeof(uint32_t));
    std::memcpy(map.units_.data(), bytes.data() + sizeof(size), size);
    map.texts_ = bytes.substr(sizeof(size) + size);
    return map;
  }

  // What replaces all of `text` by its shortest prefix that is a key, as in the library.
  std::optional<std::string_view> Find(std::string_view text) const {
    size_t at = Offset(units_[0]);
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      if (byte == 0) break;
      at ^= byte;
      if (at >= units_.size()) break;
      const uint32_t unit = units_[at];
      if ((unit & kLabelBits) != byte) break;
      at ^= Offset(unit);
      if ((unit & kLeafBit) == 0) continue;
      if (at >= units_.size()) break;
      const size_t place = units_[at] & kValueBits;
      if (place >= texts_.size()) break;
      const std::string_view rest = std::string_view(texts_).substr(place);
      return rest.substr(0, rest.find('\0'));
    }
    return std::nullopt;
  }

 private:
  static constexpr uint32_t kLeafBit = 1u << 8, kValueBits = (1u << 31) - 1;
  static constexpr uint32_t kLabelBits = 1u << 31 | 0xffu;
  static size_t Offset(uint32_t unit) { return size_t{unit >> 10} << ((unit & 1u << 9) >> 6); }

  std::vector<uint32_t> units_;
  std::string texts_;
};

class Precompiled final : public NormalizerStep {
 public:
  explicit Precompiled(CharacterMap map) : map_(std::move(map)) {}

  Status Apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = GraphemeEnd(text, begin);
      Replace(std::string_view(text).substr(begin, end - begin), out);
      begin = end;
    }
    text = std::move(out);
    return {};
  }

 private:
  static size_t GraphemeEnd(std::string_view text, size_t begin) {
    CodePoint before = CodePointAt(text, begin);
    size_t at = begin + before.width;
    utf8proc_int32_t state = 0;
    while (at < text.size()) {
      const CodePoint c = CodePointAt(text, at);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before.value),
                                           static_cast<utf8proc_int32_t>(c.value), &state)) {
        break;
      }
      before = c;
      at += c.width;
    }
    return at;
  }

  void Replace(std::string_view grapheme, std::string& out) const {
    if (grapheme.size() <= kWholeGraphemeBytes) {
      if (const auto whole = map_.Find(grapheme)) {
        out += *whole;
        return;
      }
    }
    for (size_t at = 0; at < grapheme.size();) {
      const std::string_view part = grapheme.substr(at, Utf8Width(grapheme[at]));
      out += map_.Find(part).value_or(part);
      at += part.size();
    }
  }

  CharacterMap map_;
};

}  // namespace

Result<std::unique_ptr<NormalizerStep>> ParsePrecompiled(const Json& json,
                                                         const std::string& where) {
  KVG_ASSIGN(const std::string text, StringField(json, "precompiled_charsmap", where));
  const std::optional<std::string> bytes = FromBase64(text);
  std::optional<CharacterMap> map;
  if (bytes) map = CharacterMap::From(*bytes);
  if (!map) {
    return BadInput(StrCat(where, ".precompiled_charsmap is ", Quoted(text),
                           "; expected SentencePiece's table of characters in base64"));
  }
  return std::unique_ptr<NormalizerStep>(std::make_unique<Precompiled>(*std::move(map)));
}

}  // namespace kvgauge
