// SPDX-License-Identifier: Apache-2.0
// RWKV's own vocabulary, rwkv_vocab_*.txt: lines of an id, the token as Python writes it ('...' or
// b'...') and its length in bytes. At each place of a text the longest token is taken.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/text/tokenizer/byte_trie.h"
#include "src/text/tokenizer/loaders.h"

namespace kvgauge {
namespace {

// What stands at id 0 where no file names it otherwise.
constexpr char kEndOfText[] = "<|rwkv_tokenizer_end_of_text|>";

class LongestFirst final : public PieceModel {
 public:
  // A vocabulary in the byte alphabet that has all 256 bytes.
  explicit LongestFirst(const Vocabulary& vocabulary) {
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      if (vocabulary.Has(id)) trie_.Insert(*AlphabetToBytes(vocabulary.TextOf(id)), id);
    }
  }

  void Encode(std::string_view piece, std::vector<int32_t>& out) const override {
    for (size_t begin = 0; begin < piece.size();) {
      int32_t best = -1, node = 0;
      size_t best_end = begin;
      for (size_t at = begin; at < piece.size(); ++at) {
        node = trie_.Step(node, static_cast<uint8_t>(piece[at]));
        if (node == ByteTrie::kNone) break;
        if (trie_.ValueAt(node) == ByteTrie::kNone) continue;
        best = trie_.ValueAt(node);
        best_end = at + 1;
      }
      out.push_back(best);
      begin = best_end;
    }
  }

 private:
  ByteTrie trie_;
};

// The number of so many hexadecimal digits at the front, which are taken; nothing if they are none.
std::optional<uint32_t> TakeHex(std::string_view& text, size_t digits) {
  uint32_t value = 0;
  if (text.size() < digits) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, value, 16);
  if (error != std::errc() || end != text.data() + digits) return std::nullopt;
  text.remove_prefix(digits);
  return value;
}

// What stands behind a backslash; nothing when Python's repr writes no such thing.
bool TakeEscape(std::string_view& text, bool bytes, std::string& out) {
  if (text.empty()) return false;
  const char kind = text.front();
  text.remove_prefix(1);
  switch (kind) {
    case '\\':
    case '\'':
    case '"':
      out += kind;
      return true;
    case 'n':
      out += '\n';
      return true;
    case 'r':
      out += '\r';
      return true;
    case 't':
      out += '\t';
      return true;
    default:
      break;
  }
  if (kind != 'x' && (bytes || (kind != 'u' && kind != 'U'))) return false;
  const std::optional<uint32_t> value = TakeHex(text, kind == 'x' ? 2 : kind == 'u' ? 4 : 8);
  if (!value) return false;
  if (bytes) {
    out += static_cast<char>(*value);
    return true;
  }
  if (*value > 0x10ffff || (0xd800 <= *value && *value < 0xe000)) return false;
  AppendUtf8(out, static_cast<char32_t>(*value));
  return true;
}

// 'a', "a", b'\xff': the bytes that it stands for; nothing when it is of another form.
std::optional<std::string> ParsePythonLiteral(std::string_view text) {
  const bool bytes = text.starts_with('b');
  if (bytes) text.remove_prefix(1);
  if (text.size() < 2 || (text.front() != '\'' && text.front() != '"')) return std::nullopt;
  const char quote = text.front();
  text.remove_prefix(1);
  std::string out;
  while (!text.empty() && text.front() != quote) {
    const char c = text.front();
    text.remove_prefix(1);
    if (c != '\\') {
      if (bytes && static_cast<uint8_t>(c) >= 0x80) return std::nullopt;
      out += c;
    } else if (!TakeEscape(text, bytes, out)) {
      return std::nullopt;
    }
  }
  if (text.size() != 1) return std::nullopt;  // the closing quote, and nothing behind it
  return out;
}

struct Line {
  int64_t id;
  std::string bytes;
};

Result<Line> ParseLine(std::string_view line, const std::string& where) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  const auto wrong = [&](std::string_view why) {
    return BadInput(StrCat(where, " is ", Quoted(std::string(line)), why,
                           "; a line is an id, a token as Python writes it, and its bytes"));
  };
  if (first == std::string_view::npos || first == last) return wrong("");
  const auto number = [](std::string_view digits) -> std::optional<int64_t> {
    int64_t value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0) return {};
    return value;
  };
  const auto id = number(line.substr(0, first)), length = number(line.substr(last + 1));
  if (!id || !length) return wrong("");
  std::optional<std::string> bytes = ParsePythonLiteral(line.substr(first + 1, last - first - 1));
  if (!bytes) return wrong(", whose token is no literal that Python's repr writes");
  if (std::ssize(*bytes) != *length || bytes->empty()) {
    return wrong(StrCat(", whose token has ", bytes->size(), " bytes"));
  }
  return Line{*id, std::move(*bytes)};
}

Result<std::unique_ptr<Vocabulary>> ReadLines(const std::string& path) {
  KVG_ASSIGN(const std::string text, ReadFile(path));
  std::vector<std::string> lines = Split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  auto vocabulary = std::make_unique<Vocabulary>();
  vocabulary->Reserve(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].ends_with('\r')) lines[i].pop_back();
    const std::string where = StrCat(path, ": line ", i + 1);
    KVG_ASSIGN(const Line line, ParseLine(lines[i], where));
    const std::string token = BytesToAlphabet(line.bytes);
    if (vocabulary->Find(token)) {
      return BadInput(StrCat(where, ": the token ", Quoted(token), " is repeated"));
    }
    KVG_TRY(vocabulary->Add(token, line.id, lines.size(), where));
  }
  // Id 0 is the end of a text, and no line's.
  for (int32_t id = 1; id < vocabulary->size(); ++id) {
    if (vocabulary->Has(id)) continue;
    return BadInput(StrCat(path, ": no line has id ", id, ", though one has id ",
                           vocabulary->size() - 1, "; ids leave no gap, so a line is missing"));
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (vocabulary->Find(BytesToAlphabet(std::string(1, static_cast<char>(byte))))) continue;
    return BadInput(StrCat(path, ": no line is byte ", byte,
                           "; such a vocabulary has every byte, so the file is cut"));
  }
  return vocabulary;
}

// A file that ends behind a whole line says nothing of the lines that are missing: the model does,
// which has a few rows of embeddings that no token needs.
Status CheckLength(const std::string& path, const std::string& directory, const ModelHints& hints,
                   int64_t size) {
  constexpr int64_t kMostPadding = 512;
  if (!hints.vocab_size) return {};
  const int64_t wanted = *hints.vocab_size;
  if (size <= wanted && wanted - size <= kMostPadding) return {};
  return BadInput(StrCat(path, ": its last token has id ", size - 1, ", and ", directory,
                         "/config.json has a vocab_size of ", WithCommas(wanted),
                         size > wanted ? "; it is another model's" : "; is the file cut short?"));
}

}  // namespace

std::string FindRwkvVocabulary(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rwkv_vocab_") && name.ends_with(".txt")) names.push_back(name);
  }
  return names.empty() ? std::string() : *std::ranges::max_element(names);
}

Result<std::unique_ptr<Tokenizer>> LoadRwkvVocabulary(const std::string& directory,
                                                      const std::string& name) {
  const std::string path = StrCat(directory, "/", name);
  KVG_ASSIGN(const TokenizerConfig config, ReadTokenizerConfig(directory));
  KVG_ASSIGN(const ModelHints hints, ReadModelHints(directory));
  PipelineParts parts;
  KVG_ASSIGN(parts.vocabulary, ReadLines(path));
  KVG_TRY(CheckLength(path, directory, hints, parts.vocabulary->size()));
  parts.model = std::make_unique<LongestFirst>(*parts.vocabulary);
  const bool named =
      std::ranges::any_of(config.added, [](const AddedToken& t) { return t.id == 0; });
  if (!named) {
    KVG_TRY(parts.added.Add({.id = 0, .content = kEndOfText, .special = true, .normalized = false},
                            std::nullopt, static_cast<size_t>(parts.vocabulary->size()), path));
  }
  KVG_TRY(AddConfigTokens(config, *parts.vocabulary, parts.added));
  KVG_ASSIGN(parts.normalizer, Normalizer::Parse(Json(), "normalizer"));
  KVG_ASSIGN(parts.pre_tokenizer,
             PreTokenizer::Parse(
                 {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}, path));
  parts.decoder = Decoder::ByteLevel();
  parts.clean_up = config.clean_up;
  parts.kind = StrCat("longest tokens (", name, ")");
  const std::optional<int32_t> bos = IdOfToken(config.bos, *parts.vocabulary, parts.added);
  KVG_ASSIGN(std::string fingerprint,
             FingerprintFiles(directory, {name, "tokenizer_config.json", "special_tokens_map.json",
                                          "added_tokens.json"}));
  return PipelineTokenizer::Make(std::move(parts), bos, std::move(fingerprint));
}

}  // namespace kvgauge
