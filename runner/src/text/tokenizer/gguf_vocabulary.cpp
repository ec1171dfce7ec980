// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/gguf_vocabulary.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/checkpoint/gguf/file.h"
#include "src/text/tokenizer/gguf_cuts.h"
#include "src/text/tokenizer/loaders.h"

namespace kvgauge {
namespace {

constexpr std::string_view kVocabularyScope = "tokenizer.ggml.";
constexpr int64_t kMostTokens = int64_t{1} << 24;

// As SentencePiece numbers them.
enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6 };

struct Words {
  std::vector<std::string_view> tokens;
  std::vector<int64_t> types;  // one for each
  std::map<std::string, std::string> specials;
  std::optional<bool> add_bos, add_eos, add_space;
};

std::string KeyOf(std::string_view name) { return StrCat(kVocabularyScope, name); }

std::optional<bool> Flag(const GgufHeader& header, std::string_view name) {
  const GgufValue* value = header.Find(KeyOf(name));
  return value == nullptr ? std::nullopt : value->Bool();
}

Result<std::vector<std::string_view>> TextsOf(const GgufHeader& header, std::string_view name,
                                              const std::string& path) {
  const GgufValue* value = header.Find(KeyOf(name));
  const auto texts = value != nullptr ? value->Texts() : std::nullopt;
  if (!texts || texts->empty() || std::ssize(*texts) > kMostTokens) {
    return BadInput(StrCat(path, ": key '", kVocabularyScope, name,
                           "' is missing or no list of 1 to ", kMostTokens, " texts"));
  }
  for (size_t i = 0; i < texts->size(); ++i) {
    if (FindInvalidUtf8((*texts)[i]) == std::string_view::npos) continue;
    return BadInput(
        StrCat(path, ": key '", kVocabularyScope, name, "', element ", i, ": not UTF-8"));
  }
  return *texts;
}

Result<Words> ReadWords(const GgufHeader& header, const std::string& path) {
  Words words;
  KVG_ASSIGN(words.tokens, TextsOf(header, "tokens", path));
  words.types.assign(words.tokens.size(), kNormal);
  if (const GgufValue* value = header.Find(KeyOf("token_type"))) {
    const auto types = value->Ints();
    if (!types || types->size() != words.tokens.size() ||
        std::ranges::any_of(*types, [](int64_t type) { return type < 1 || type > kByte; })) {
      return BadInput(StrCat(path, ": key '", kVocabularyScope,
                             "token_type', expected a number from 1 to 6 "
                             "for each of the ",
                             words.tokens.size(), " tokens"));
    }
    words.types = *types;
  }
  KVG_ASSIGN(words.specials, GgufSpecialTokens(header, path));
  words.add_bos = Flag(header, "add_bos_token");
  words.add_eos = Flag(header, "add_eos_token");
  words.add_space = Flag(header, "add_space_prefix");
  return words;
}

// Over all that ids follow from.
std::string Fingerprint(const GgufHeader& header) {
  Sha256 hash;
  for (const auto& [key, value] : header.metadata) {
    if (!key.starts_with(kVocabularyScope)) continue;
    const std::string head = StrCat(key, " ", value.bytes().size(), "\n");
    hash.Update(head.data(), head.size());
    hash.Update(value.bytes().data(), value.bytes().size());
  }
  return hash.Finish();
}

// The vocabulary, with what is found in a text before anything cuts it.
Status AddWords(const Words& words, const std::string& path, PipelineParts& parts) {
  parts.vocabulary = std::make_unique<Vocabulary>();
  parts.vocabulary->Reserve(words.tokens.size());
  const std::string where = StrCat(path, ": key '", kVocabularyScope, "tokens'");
  for (size_t i = 0; i < words.tokens.size(); ++i) {
    const auto id = static_cast<int64_t>(i);
    KVG_TRY(parts.vocabulary->Add(words.tokens[i], id, words.tokens.size(), where));
    if (words.types[i] != kControl && words.types[i] != kUserDefined) continue;
    AddedToken token{.id = static_cast<int32_t>(id),
                     .content = std::string(words.tokens[i]),
                     .special = words.types[i] == kControl,
                     .normalized = false};
    KVG_TRY(
        parts.added.Add(std::move(token), static_cast<int32_t>(id), words.tokens.size(), where));
  }
  return {};
}

std::optional<int32_t> IdOfSpecial(const char* key, const Words& words,
                                   const PipelineParts& parts) {
  const auto found = words.specials.find(key);
  return found == words.specials.end() ? std::nullopt : parts.vocabulary->Find(found->second);
}

// With what the file puts around a text.
Result<std::unique_ptr<Tokenizer>> MakeFramed(const GgufHeader& header, const Words& words,
                                              bool bos_by_default, PipelineParts parts) {
  const std::optional<int32_t> bos = IdOfSpecial("bos_token", words, parts),
                               eos = IdOfSpecial("eos_token", words, parts);
  if (bos && words.add_bos.value_or(bos_by_default)) parts.prefix.push_back(*bos);
  if (eos && words.add_eos.value_or(false)) parts.suffix.push_back(*eos);
  return PipelineTokenizer::Make(std::move(parts), bos, Fingerprint(header));
}

// --- byte-level ---

Result<const GgufCuts*> CutsOf(const GgufHeader& header, const std::string& path) {
  const std::string key = KeyOf("pre");
  const GgufValue* value = header.Find(key);
  return FindGgufCuts(value != nullptr ? value->Text().value_or("") : "",
                      StrCat(path, ": key '", key, "'"));
}

Result<std::vector<BpeMerge>> ReadMerges(const GgufHeader& header, const std::string& path) {
  KVG_ASSIGN(const std::vector<std::string_view> lines, TextsOf(header, "merges", path));
  std::vector<BpeMerge> merges;
  merges.reserve(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t space = lines[i].find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == lines[i].size() ||
        lines[i].find(' ', space + 1) != std::string_view::npos) {
      return BadInput(StrCat(path, ": key '", kVocabularyScope, "merges', element ", i, ": ",
                             Quoted(lines[i], 60), ", expected two tokens and a space between"));
    }
    merges.push_back(
        {std::string(lines[i].substr(0, space)), std::string(lines[i].substr(space + 1))});
  }
  return merges;
}

Result<std::unique_ptr<Tokenizer>> LoadByteLevel(const GgufHeader& header, const Words& words,
                                                 const std::string& path) {
  KVG_ASSIGN(const GgufCuts* cuts, CutsOf(header, path));
  PipelineParts parts;
  KVG_TRY(AddWords(words, path, parts));
  KVG_ASSIGN(parts.normalizer, Normalizer::Parse(NormalizerOf(*cuts), "normalizer"));
  KVG_ASSIGN(parts.pre_tokenizer, PreTokenizer::Parse(PreTokenizerOf(*cuts), "steps"));
  KVG_ASSIGN(const std::vector<BpeMerge> merges, ReadMerges(header, path));
  KVG_ASSIGN(parts.model, MakeBpe(*parts.vocabulary, merges,
                                  {.byte_level = true, .ignore_merges = cuts->whole_tokens}, path));
  parts.decoder = Decoder::ByteLevel();
  parts.kind = StrCat("byte-level BPE (GGUF; ", cuts->name, ")");
  return MakeFramed(header, words, cuts->bos_by_default, std::move(parts));
}

// --- merges of characters ---

// As the tokenizer.json of Gemma 4: spaces are spelled, nothing is cut, and characters without a
// token are bytes.
Result<std::unique_ptr<Tokenizer>> LoadMerged(const GgufHeader& header, const Words& words,
                                              const std::string& path) {
  constexpr const char* kSpace = "\u2581";
  const Json space = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
  const Json back = {{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}};
  const Json steps = Json::array({back, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  PipelineParts parts;
  KVG_TRY(AddWords(words, path, parts));
  KVG_ASSIGN(parts.normalizer, Normalizer::Parse(space, "spaces"));
  KVG_ASSIGN(parts.pre_tokenizer, PreTokenizer::Parse(Json(), "cuts"));
  KVG_ASSIGN(parts.decoder, Decoder::Parse({{"type", "Sequence"}, {"decoders", steps}}, "steps"));
  KVG_ASSIGN(const std::vector<BpeMerge> merges, ReadMerges(header, path));
  const std::optional<int32_t> unknown = IdOfSpecial("unk_token", words, parts);
  KVG_ASSIGN(
      parts.model,
      MakeBpe(*parts.vocabulary, merges,
              {.byte_fallback = true, .fuse_unk = true, .unk_id = unknown.value_or(-1)}, path));
  parts.kind = "BPE (GGUF; gemma4)";
  return MakeFramed(header, words, /*bos_by_default=*/true, std::move(parts));
}

// --- SentencePiece ---

// The library's own format: fields of messages, written one after the other.
class WireWriter {
 public:
  void Number(uint64_t field, uint64_t value) {
    Varint(field << 3);
    Varint(value);
  }
  void Float(uint64_t field, float value) {
    Varint(field << 3 | 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int i = 0; i < 4; ++i) bytes_.push_back(static_cast<char>(bits >> (8 * i)));
  }
  void Bytes(uint64_t field, std::string_view bytes) {
    Varint(field << 3 | 2);
    Varint(bytes.size());
    bytes_ += bytes;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  std::string bytes_;
};

Result<std::string> ModelOf(const GgufHeader& header, const Words& words, const std::string& path) {
  const GgufValue* value = header.Find(KeyOf("scores"));
  const auto scores = value != nullptr ? value->Reals() : std::nullopt;
  if (!scores || scores->size() != words.tokens.size()) {
    return BadInput(StrCat(path, ": key '", kVocabularyScope,
                           "scores' is missing or no number for each of "
                           "the ",
                           words.tokens.size(), " tokens"));
  }
  constexpr uint64_t kPiece = 1, kTrainer = 2, kNormalizer = 3;
  WireWriter model, trainer, normalizer;
  for (size_t i = 0; i < words.tokens.size(); ++i) {
    WireWriter piece;
    piece.Bytes(1, words.tokens[i]);
    piece.Float(2, static_cast<float>((*scores)[i]));
    piece.Number(3, static_cast<uint64_t>(words.types[i]));
    model.Bytes(kPiece, piece.bytes());
  }
  constexpr uint64_t kModelType = 3, kBpe = 2, kByteFallback = 35;
  trainer.Number(kModelType, kBpe);
  trainer.Number(kByteFallback, std::ranges::count(words.types, kByte) > 0 ? 1 : 0);
  model.Bytes(kTrainer, trainer.bytes());
  constexpr uint64_t kName = 1, kAddDummyPrefix = 3, kRemoveExtraWhitespaces = 4;
  normalizer.Bytes(kName, "identity");
  normalizer.Number(kAddDummyPrefix, words.add_space.value_or(true) ? 1 : 0);
  normalizer.Number(kRemoveExtraWhitespaces, 0);
  model.Bytes(kNormalizer, normalizer.bytes());
  return model.bytes();
}

Result<std::unique_ptr<Tokenizer>> LoadPieces(const GgufHeader& header, const Words& words,
                                              const std::string& path) {
  KVG_ASSIGN(const std::string model, ModelOf(header, words, path));
  TokenizerConfig config;
  config.path = path;
  const auto named = [&](const char* key) {
    const auto found = words.specials.find(key);
    return found == words.specials.end() ? std::string() : found->second;
  };
  config.bos = named("bos_token");
  config.eos = named("eos_token");
  config.unk = named("unk_token");
  config.add_bos = words.add_bos;
  config.add_eos = words.add_eos;
  for (size_t i = 0; i < words.tokens.size(); ++i) {
    const std::string token(words.tokens[i]);
    const bool special = words.types[i] == kControl || words.types[i] == kUnknown;
    if (special)
      config.specials.push_back({.content = token, .special = true, .normalized = false});
  }
  return MakeSentencePiece({.kind = "SentencePiece (GGUF)",
                            .path = path,
                            .model = model,
                            .config = std::move(config),
                            .fingerprint = Fingerprint(header)});
}

}  // namespace

bool HasGgufVocabulary(const GgufHeader& header) { return header.Find(KeyOf("tokens")) != nullptr; }

Result<std::map<std::string, std::string>> GgufSpecialTokens(const GgufHeader& header,
                                                             const std::string& path) {
  std::map<std::string, std::string> specials;
  if (!HasGgufVocabulary(header)) return specials;
  KVG_ASSIGN(const std::vector<std::string_view> tokens, TextsOf(header, "tokens", path));
  struct Row {
    std::string_view file;
    const char* name;
  };
  for (const auto& [file, name] :
       {Row{"bos_token_id", "bos_token"}, Row{"eos_token_id", "eos_token"},
        Row{"unknown_token_id", "unk_token"}, Row{"padding_token_id", "pad_token"}}) {
    const GgufValue* value = header.Find(KeyOf(file));
    if (value == nullptr) continue;
    const std::optional<int64_t> id = value->Int();
    if (!id || *id < 0 || *id >= std::ssize(tokens)) {
      return BadInput(StrCat(path, ": key '", kVocabularyScope, file, "', expected an id below ",
                             tokens.size(), ", the number of tokens"));
    }
    specials.emplace(name, tokens[static_cast<size_t>(*id)]);
  }
  return specials;
}

Result<std::unique_ptr<Tokenizer>> LoadGgufTokenizer(const std::string& path) {
  KVG_ASSIGN(const GgufFile file, OpenGgufHeader(path));
  const std::string key = KeyOf("model");
  const GgufValue* value = file.header.Find(key);
  const std::string model(value != nullptr ? value->Text().value_or("") : "");
  if (model != "gpt2" && model != "llama" && model != "gemma4") {
    return Unsupported(StrCat(path, ": key '", key, "': ", Quoted(model, 60),
                              ", expected gpt2 (byte-level BPE), llama (SentencePiece BPE) or "
                              "gemma4 (merges of characters)"));
  }
  KVG_ASSIGN(const Words words, ReadWords(file.header, path));
  if (model == "gpt2") return LoadByteLevel(file.header, words, path);
  return model == "llama" ? LoadPieces(file.header, words, path)
                          : LoadMerged(file.header, words, path);
}

}  // namespace kvgauge
