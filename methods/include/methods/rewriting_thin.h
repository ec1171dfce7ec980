// SPDX-License-Identifier: Apache-2.0
// Stages that put shorter texts in the place of a prompt's before anything of it is computed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "methods/thin.h"
#include "methods/token_tagger.h"

namespace kvgauge {

// A prompt as text. Rows are those of the prompt, counted from 0.
class SpelledPrompt {
 public:
  virtual ~SpelledPrompt() = default;
  virtual int64_t rows() const = 0;
  // Whether a row is a token; else it shows a piece of a picture.
  virtual bool IsText(int64_t row) const = 0;
  // What the tokens of rows [begin, end) spell. Precondition: all are text.
  virtual std::string Spell(int64_t begin, int64_t end) const = 0;
  // The ids of a text, without special tokens.
  virtual Result<std::vector<int32_t>> Encode(std::string_view text) const = 0;
  // The encoder that the stage's `encoder` names; an error where none was loaded.
  virtual Result<TokenTagger*> Tagger() const = 0;
};

// A run of text and the tokens that take its place: at most as many as it has.
struct TextChange {
  int64_t begin = 0, end = 0;  // rows
  std::vector<int32_t> ids;
};

// Its stage declares Needs::encoder. What takes the place of a run stands on some of its rows: on
// those of equal tokens as far as they are found, which says no more than where entries are
// counted. The other rows of the run leave.
class RewritingThin : public Thin {
 public:
  std::vector<int64_t> Layers(const ModelShape&) const final { return {0}; }
  bool reads_again() const final { return true; }
  Tensor Choose(LayerView&) const final {
    KVG_CHECK(false, "such a stage looks at no layer");
    return {};
  }
  // Changes ascend and do not overlap. None holds the last row, which gives the answer's first
  // token.
  virtual Result<std::vector<TextChange>> Rewrite(const SpelledPrompt& prompt) const = 0;
};

}  // namespace kvgauge
