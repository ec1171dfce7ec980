// SPDX-License-Identifier: Apache-2.0
// How the byte-level vocabulary of a GGUF file cuts a text: what each value of tokenizer.ggml.pre
// stands for. Files name it and do not say it; here are the steps of the tokenizer.json that the
// name was given for.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/json_fwd.h"
#include "core/result.h"
#include "src/text/tokenizer/split.h"

namespace kvgauge {

// One step, as tokenizer.json calls it.
struct GgufCutStep {
  enum class Kind {
    kSplit,            // every match of `pattern` is a piece, and so is what is between
    kHotSplit,         // the same with `hot`
    kDigits,           // every digit is a piece
    kDigitRuns,        // every run of digits is a piece
    kPunctuationRuns,  // every run of punctuation is a piece
    kGpt2,             // the pattern of ByteLevel; later steps see its alphabet and not text
  };
  Kind kind = Kind::kSplit;
  std::string_view pattern = "";
  HotPattern hot = HotPattern::kGpt2;
};

struct GgufCuts {
  std::string_view name;  // tokenizer.ggml.pre
  std::span<const GgufCutStep> steps;
  bool nfc = false;             // texts are normalised first, which no file says
  bool whole_tokens = false;    // a piece that is a token is that token
  bool bos_by_default = false;  // where the file has no add_bos_token
};

// An error names the known ones and begins with `where`.
Result<const GgufCuts*> FindGgufCuts(std::string_view name, std::string_view where);
// All that are known, sorted by name.
std::span<const GgufCuts> AllGgufCuts();

// The values of "normalizer" and "pre_tokenizer" of a tokenizer.json that cuts in this way.
Json NormalizerOf(const GgufCuts& cuts);
Json PreTokenizerOf(const GgufCuts& cuts);

}  // namespace kvgauge
