// SPDX-License-Identifier: Apache-2.0
// The vocabulary inside a GGUF file.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/result.h"
#include "runner/tokenizer.h"
#include "src/checkpoint/gguf/header.h"

namespace kvgauge {

bool HasGgufVocabulary(const GgufHeader& header);

// A byte-level one ("gpt2") whose way to cut texts has a name that is known, or one of
// SentencePiece ("llama"). Ids are those of the checkpoint that the file was made from. Two things
// no file says: whether Qwen's texts are normalised (they are), and whether text behind a special
// token begins with a space of its own (with SentencePiece it does, as readers of such files have
// it).
Result<std::unique_ptr<Tokenizer>> LoadGgufTokenizer(const std::string& path);

// "bos_token", "eos_token", "unk_token", "pad_token": their spellings where the file names them.
Result<std::map<std::string, std::string>> GgufSpecialTokens(const GgufHeader& header,
                                                             const std::string& path);

}  // namespace kvgauge
