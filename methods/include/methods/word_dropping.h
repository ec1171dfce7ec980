// SPDX-License-Identifier: Apache-2.0
// A text without the words that a trained encoder does not hold on to.
//
// After microsoft/LLMLingua 0.2.2 (PromptCompressor.compress_prompt with use_llmlingua2), rule by
// rule. The text is cut into chunks that the encoder can read, at the last full stop or new line
// where there is one. A word is as likely to stay as its tokens are on average. A chunk keeps the
// words above a percentile of all its words, each of which counts as often as it has tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "methods/probe.h"
#include "methods/token_tagger.h"

namespace kvgauge {

struct WordRules {
  std::vector<std::string> forced;  // these stay, as words and inside the text; at most kMarks
  bool forced_digits = false;       // words with a digit stay
  bool drop_consecutive = false;    // a forced word leaves where it follows itself
  bool by_first_token = false;      // a word is as likely to stay as its first token
  TextEdges edges = TextEdges::kOwn;
};

struct DroppedWords {
  std::string text;                // of the words that stay
  std::vector<std::string> words;  // of all chunks, as the encoder's vocabulary spells them
  std::vector<bool> stays;         // each
};

// `reduce`: the share that leaves, above 0 and at most 1. `count`: the tokens of a word.
Result<DroppedWords> DropWords(std::string_view text, const WordRules& rules, double reduce,
                               TokenTagger& tagger, const TextEncoder& count);

}  // namespace kvgauge
