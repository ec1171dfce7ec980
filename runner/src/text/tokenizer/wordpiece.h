// SPDX-License-Identifier: Apache-2.0
// WordPiece: a word is its longest token from the left, then the longest of those that go on, and
// so on; a word that does not end this way is unknown as a whole.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "src/text/tokenizer/bpe.h"

namespace kvgauge {

struct WordPieceOptions {
  int32_t unk_id = 0;
  std::string continues = "##";   // what tokens inside a word begin with
  int64_t most_characters = 100;  // of a word that is not unknown
};

// The vocabulary must outlive the model.
std::unique_ptr<PieceModel> MakeWordPiece(const Vocabulary& vocabulary,
                                          const WordPieceOptions& options);

}  // namespace kvgauge
