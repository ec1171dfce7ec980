// SPDX-License-Identifier: Apache-2.0
// One loader per file layout. Each expects its files to exist.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "runner/tokenizer.h"
#include "src/text/tokenizer/pipeline.h"
#include "src/text/tokenizer/tokenizer_config.h"

namespace kvgauge {

Result<std::unique_ptr<Tokenizer>> LoadTokenizerJson(const std::string& directory);
// What such a file describes; an error names `path`.
Result<std::unique_ptr<Tokenizer>> MakeTokenizer(const Json& root, const std::string& path,
                                                 const TokenizerConfig& config,
                                                 std::string fingerprint);
// BERT's tokens line by line in vocab.txt; tokenizer_config.json says how texts are cut.
Result<std::unique_ptr<Tokenizer>> LoadVocabText(const std::string& directory);
Result<std::unique_ptr<Tokenizer>> LoadSentencePiece(const std::string& directory);
// A SentencePiece model as the library reads it, and what is known of its special tokens.
struct PieceModelParts {
  std::string kind;
  std::string path;  // for messages
  std::string model;
  TokenizerConfig config;
  std::string fingerprint;
};
Result<std::unique_ptr<Tokenizer>> MakeSentencePiece(PieceModelParts parts);
// A byte-level vocabulary; its class says how texts are cut and which tokens are special.
Result<std::unique_ptr<Tokenizer>> LoadVocabMerges(const std::string& directory);

// The vocabulary file of Qwen's first models.
inline constexpr std::string_view kQwenTiktokenFile = "qwen.tiktoken";
// Whether a file begins as a tiktoken vocabulary does: lines of base64 and a rank.
Result<bool> IsTiktoken(const std::string& path);
// `name`: the vocabulary file in the directory. Its class says the rest.
Result<std::unique_ptr<Tokenizer>> LoadTiktoken(const std::string& directory,
                                                std::string_view name);

// RWKV's vocabulary rwkv_vocab_*.txt in the directory, the last by name; "" without one.
std::string FindRwkvVocabulary(const std::string& directory);
Result<std::unique_ptr<Tokenizer>> LoadRwkvVocabulary(const std::string& directory,
                                                      const std::string& name);

// {"token": id, ...}; an error names `where`.
Result<std::unique_ptr<Vocabulary>> ParseVocabObject(const Json& vocab, const std::string& where);

// SHA-256 over names and contents of the files of `names` that exist.
Result<std::string> FingerprintFiles(const std::string& directory,
                                     const std::vector<std::string>& names);

// Adds what the configuration knows beyond `added`: its tokens with ids, then special tokens, which
// take the model's id or, when the model has none, the next free one.
Status AddConfigTokens(const TokenizerConfig& config, const Vocabulary& vocabulary,
                       AddedVocabulary& added);
// The id of a special token by its spelling; nothing for "".
std::optional<int32_t> IdOfToken(std::string_view text, const Vocabulary& vocabulary,
                                 const AddedVocabulary& added);

}  // namespace kvgauge
