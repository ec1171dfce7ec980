// SPDX-License-Identifier: Apache-2.0
// One loader per file layout. Each expects its files to exist.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "runner/tokenizer.h"
#include "src/text/tokenizer/pipeline.h"
#include "src/text/tokenizer/tokenizer_config.h"

namespace kvgauge {

Result<std::unique_ptr<Tokenizer>> LoadTokenizerJson(const std::string& directory);
Result<std::unique_ptr<Tokenizer>> LoadSentencePiece(const std::string& directory);
Result<std::unique_ptr<Tokenizer>> LoadVocabMerges(const std::string& directory);

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
