// SPDX-License-Identifier: Apache-2.0
// Texts of a requested number of tokens, counted with the model's own tokenizer.
//
// Counts of pieces do not add up: merges cross the joints. So pieces are counted once and their
// sums only guess where to cut; every text that leaves here was encoded whole, and that count
// decides. All of it is a pure function of its arguments, memory included: which samples were built
// before never moves a cut.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/text_codec.h"

namespace kvgauge {

class TokenCounter {
 public:
  TokenCounter() = default;  // only to be assigned to
  // A missing codec is an error: `owner` says who needs it. The codec must outlive the counter.
  static Result<TokenCounter> Create(const TextCodec* codec, std::string_view owner);

  // Tokens of the text alone, without BOS and EOS.
  Result<int64_t> Exact(std::string_view text) const;
  // About what `piece` adds to a text that ends with a full stop.
  Result<int64_t> Added(std::string_view piece) const;

 private:
  explicit TokenCounter(const TextCodec* codec) : codec_(codec) {}

  const TextCodec* codec_ = nullptr;
  int64_t anchor_tokens_ = 0;
};

// A sentence with the white space before it.
struct TextPiece {
  std::string text;
  int64_t tokens = -1;  // TokenCounter::Added, once it was asked for
};

// Text that grows piece by piece and is cut anywhere.
class Filler {
 public:
  // The j-th piece, for every j >= 0; its owner keeps the count that is written into it.
  using PieceAt = std::function<TextPiece&(int64_t j)>;

  Filler(const TokenCounter* counter, PieceAt piece_at)
      : counter_(counter), piece_at_(std::move(piece_at)) {}

  const std::string& text() const { return text_; }
  // Bytes of the longest text of about `tokens` tokens; ends on a whole UTF-8 character.
  Result<int64_t> CutFor(int64_t tokens);
  // About the tokens of the first `bytes` bytes. Precondition: text() reaches that far.
  double TokensAt(int64_t bytes) const;
  // The last end of a sentence within `bytes` bytes and about `tokens` tokens; 0 when there is
  // none.
  int64_t SentenceEnd(double tokens, int64_t bytes) const;
  // The last whole character within about `tokens` tokens and `bytes` bytes.
  int64_t CharacterEnd(double tokens, int64_t bytes) const;
  // Puts `text` behind the first `bytes` bytes, and takes `size` bytes from there out again. Ends
  // of sentences up to there stay.
  void Insert(int64_t bytes, std::string_view text);
  void Erase(int64_t bytes, int64_t size);

 private:
  Status Grow();

  const TokenCounter* counter_;
  PieceAt piece_at_;
  std::string text_;
  std::vector<int64_t> byte_ends_;   // of each piece
  std::vector<int64_t> token_ends_;  // summed guesses
};

struct Fit {
  int64_t size = 0;    // bytes of filler, or units
  int64_t spread = 0;  // FitCut only
  int64_t tokens = 0;  // of the whole text, exact
};

// The cut of the filler with which the whole text, of `count(cut, spread)` tokens, has `budget` or
// one less. What stands inside the filler is placed as in a filler of `spread` bytes, which is the
// first guess of the cut and stays: a last adjustment moves the end of the text and nothing before
// it. Where no cut gives either (characters of several tokens), full stops go into the filler
// behind the fullest cut; where they do not help, the fullest text found that fits. A budget that
// the text without filler exceeds is an error; `what` begins it.
Result<Fit> FitCut(Filler& filler, int64_t budget,
                   const std::function<Result<int64_t>(int64_t cut, int64_t spread)>& count,
                   std::string_view what);

// What fills a text of whole units up to the token: it stands behind them, where it changes no
// answer.
struct Tail {
  std::string frame, joint;  // before the filler, the second only where there is any
  Filler filler;

  std::string Text(int64_t cut) const;  // "" for a cut of -1
};
// The same pieces over and over, each with the white space before it.
Filler RepeatingFiller(const TokenCounter* counter, std::vector<std::string> pieces);

// FitUnits, and what it leaves filled: as many units as fit beside the filler's own frame.
struct FilledFit {
  int64_t units = 0;
  int64_t cut = -1;  // bytes of filler; -1: none is needed, or its frame does not fit
  int64_t tokens = 0;
};
// `count(units, cut)` are the tokens of the whole text; a cut of -1 is one without filler and its
// frame, which is all there is where `filler` is null.
Result<FilledFit> FitFilled(Filler* filler, int64_t budget, int64_t least, int64_t most,
                            const std::function<Result<int64_t>(int64_t units, int64_t cut)>& count,
                            std::string_view what);
// The same where `build(units, cut)` is the text.
Result<FilledFit> FitFilled(const TokenCounter& counter, Filler* filler, int64_t budget,
                            int64_t least, int64_t most,
                            const std::function<std::string(int64_t units, int64_t cut)>& build,
                            std::string_view what);

// As many whole units (lines, words, records) as fit, between `least` and `most`.
Result<Fit> FitUnits(int64_t budget, int64_t least, int64_t most,
                     const std::function<Result<int64_t>(int64_t units)>& count,
                     std::string_view what);
Result<Fit> FitUnits(const TokenCounter& counter, int64_t budget, int64_t least, int64_t most,
                     const std::function<std::string(int64_t units)>& build, std::string_view what);

}  // namespace kvgauge
