// SPDX-License-Identifier: Apache-2.0
#include "runner/tokenizer.h"

#include <algorithm>
#include <utility>

#include "core/files.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/checkpoint/gguf/file.h"
#include "src/text/tokenizer/gguf_vocabulary.h"
#include "src/text/tokenizer/loaders.h"

namespace kvgauge {

namespace {

std::string DecodeAll(std::span<const int32_t> ids, Detokenizer& detokenizer) {
  std::string out;
  for (const int32_t id : ids) detokenizer.Push(id, out);
  detokenizer.Finish(out);
  return out;
}

}  // namespace

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  return DecodeAll(ids, *NewDetokenizer({.skip_special = skip_special}));
}

std::string Tokenizer::Spell(std::span<const int32_t> ids) const {
  return DecodeAll(ids, *NewDetokenizer({.skip_special = false, .clean_up = false}));
}

std::string TextStream::Push(int32_t id) {
  std::string out;
  detokenizer_->Push(id, out);
  return out;
}

std::string TextStream::Finish() {
  std::string out;
  detokenizer_->Finish(out);
  return out;
}

Result<std::string> FingerprintFiles(const std::string& directory,
                                     const std::vector<std::string>& names) {
  Sha256 hash;
  for (const std::string& name : names) {
    const std::string path = StrCat(directory, "/", name);
    if (!FileExists(path)) continue;
    KVG_ASSIGN(const std::string content, ReadFile(path));
    const std::string head = StrCat(name, " ", content.size(), "\n");
    hash.Update(head.data(), head.size());
    hash.Update(content.data(), content.size());
  }
  return hash.Finish();
}

Status AddConfigTokens(const TokenizerConfig& config, const Vocabulary& vocabulary,
                       AddedVocabulary& added) {
  const size_t expected = static_cast<size_t>(std::max(vocabulary.size(), added.size())) +
                          config.added.size() + config.specials.size();
  for (const AddedToken& token : config.added) {
    KVG_TRY(added.Add(token, vocabulary.Find(token.content), expected,
                      StrCat(config.path, ": added_tokens_decoder")));
  }
  for (AddedToken token : config.specials) {
    const std::optional<int32_t> id = vocabulary.Find(token.content);
    token.id = id ? *id : static_cast<int32_t>(std::max(vocabulary.size(), added.size()));
    KVG_TRY(added.Add(std::move(token), id, expected, StrCat(config.path, ": special tokens")));
  }
  return {};
}

std::optional<int32_t> IdOfToken(std::string_view text, const Vocabulary& vocabulary,
                                 const AddedVocabulary& added) {
  if (text.empty()) return std::nullopt;
  if (const AddedToken* token = added.Find(text)) return token->id;
  return vocabulary.Find(text);
}

bool HasTokenizer(const std::string& directory) {
  const Result<std::optional<std::string>> gguf = FindGguf(directory);
  if (gguf.ok() && *gguf) {
    const Result<GgufFile> file = OpenGgufHeader(**gguf);
    return file.ok() && HasGgufVocabulary(file->header);
  }
  const auto has = [&](std::string_view name) { return FileExists(StrCat(directory, "/", name)); };
  return has("tokenizer.json") || has("tokenizer.model") || has(kQwenTiktokenFile) ||
         (has("vocab.json") && has("merges.txt")) || has("vocab.txt") ||
         !FindRwkvVocabulary(directory).empty();
}

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory) {
  KVG_ASSIGN(const std::optional<std::string> gguf, FindGguf(directory));
  if (gguf) return LoadGgufTokenizer(*gguf);
  if (FileExists(directory + "/tokenizer.json")) return LoadTokenizerJson(directory);
  if (FileExists(directory + "/tokenizer.model")) {
    KVG_ASSIGN(const bool tiktoken, IsTiktoken(directory + "/tokenizer.model"));
    return tiktoken ? LoadTiktoken(directory, "tokenizer.model") : LoadSentencePiece(directory);
  }
  if (FileExists(StrCat(directory, "/", kQwenTiktokenFile))) {
    return LoadTiktoken(directory, kQwenTiktokenFile);
  }
  const bool vocab = FileExists(directory + "/vocab.json");
  const bool merges = FileExists(directory + "/merges.txt");
  if (vocab && merges) return LoadVocabMerges(directory);
  if (vocab || merges) {
    return BadInput(StrCat(directory, ": has ", vocab ? "vocab.json" : "merges.txt", " but no ",
                           vocab ? "merges.txt" : "vocab.json", "; a tokenizer needs both"));
  }
  if (FileExists(directory + "/vocab.txt")) return LoadVocabText(directory);
  if (const std::string name = FindRwkvVocabulary(directory); !name.empty()) {
    return LoadRwkvVocabulary(directory, name);
  }
  if (!DirectoryExists(directory)) {
    return BadInput(StrCat(directory, ": no such directory, expected one with a tokenizer"));
  }
  return BadInput(StrCat(directory, ": no tokenizer; looked for tokenizer.json, tokenizer.model, ",
                         kQwenTiktokenFile,
                         ", vocab.json with merges.txt, vocab.txt and rwkv_vocab_*.txt"));
}

}  // namespace kvgauge
