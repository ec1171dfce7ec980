// SPDX-License-Identifier: Apache-2.0
// Unigram language-model segmentation: the sequence of tokens with the highest sum of scores.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/tokenizer/bpe.h"

namespace kvgauge {

struct UnigramOptions {
  int32_t unk_id = -1;  // -1: unknown characters vanish
  bool byte_fallback = false;
};

// scores: by id. The vocabulary must outlive the model.
std::unique_ptr<PieceModel> MakeUnigram(const Vocabulary& vocabulary, std::vector<double> scores,
                                        const UnigramOptions& options);

}  // namespace kvgauge
