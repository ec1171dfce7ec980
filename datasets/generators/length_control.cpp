// SPDX-License-Identifier: Apache-2.0
#include "generators/length_control.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "core/check.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr std::string_view kAnchor = ".";
constexpr int kGuesses = 8;
constexpr int64_t kFewerUnits = 8;
constexpr int kLengthNeighbours =
    48;  // characters tried one by one on each side, after the guesses
// A character that every vocabulary has in one token, alone and apart.
constexpr std::string_view kPads[] = {".", " ."};

bool StartsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

int64_t WholeCharacters(std::string_view text, int64_t bytes) {
  while (bytes > 0 && bytes < static_cast<int64_t>(text.size()) && !StartsCharacter(text[bytes])) {
    --bytes;
  }
  return bytes;
}

int64_t NextCharacter(std::string_view text, int64_t bytes) {
  const auto size = static_cast<int64_t>(text.size());
  if (bytes < size) ++bytes;
  while (bytes < size && !StartsCharacter(text[bytes])) ++bytes;
  return bytes;
}

Error TooShort(std::string_view what, int64_t budget, int64_t needed) {
  return BadInput(StrCat(what, ": ",
                         budget > 0 ? StrCat(budget, " tokens are") : "nothing is left, which is",
                         " too few; instructions, question and what must be found take ", needed,
                         "; the length must grow by ", needed - budget, " or more"));
}

}  // namespace

Result<TokenCounter> TokenCounter::Create(const TextCodec* codec, std::string_view owner) {
  if (codec == nullptr) {
    return BadInput(StrCat(
        owner,
        ": lengths are in the model's tokens; this needs a tokenizer, name a model with --model"));
  }
  TokenCounter counter(codec);
  KVG_ASSIGN(counter.anchor_tokens_, counter.Exact(kAnchor));
  return counter;
}

Result<int64_t> TokenCounter::Exact(std::string_view text) const {
  KVG_ASSIGN(const std::vector<int32_t> ids, codec_->Encode(text, false));
  return static_cast<int64_t>(ids.size());
}

Result<int64_t> TokenCounter::Added(std::string_view piece) const {
  std::string text(kAnchor);
  text += piece;
  KVG_ASSIGN(const int64_t tokens, Exact(text));
  return std::max<int64_t>(0, tokens - anchor_tokens_);
}

Status Filler::Grow() {
  TextPiece& piece = piece_at_(static_cast<int64_t>(byte_ends_.size()));
  if (piece.tokens < 0) {
    KVG_ASSIGN(piece.tokens, counter_->Added(piece.text));
  }
  std::string_view text = piece.text;
  if (text_.empty()) text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  text_ += text;
  byte_ends_.push_back(static_cast<int64_t>(text_.size()));
  token_ends_.push_back((token_ends_.empty() ? 0 : token_ends_.back()) + piece.tokens);
  return {};
}

Result<int64_t> Filler::CutFor(int64_t tokens) {
  if (tokens <= 0) return int64_t{0};
  while (token_ends_.empty() || token_ends_.back() <= tokens) KVG_TRY(Grow());
  const auto after = std::upper_bound(token_ends_.begin(), token_ends_.end(), tokens);
  const size_t j = static_cast<size_t>(after - token_ends_.begin());
  const int64_t begin = j == 0 ? 0 : byte_ends_[j - 1];
  const int64_t room = tokens - (j == 0 ? 0 : token_ends_[j - 1]);
  // The share of the next sentence that still fits: bisected on its own tokens.
  int64_t low = begin, high = byte_ends_[j];
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    KVG_ASSIGN(const int64_t added, counter_->Added(std::string_view(text_).substr(
                                        begin, WholeCharacters(text_, middle) - begin)));
    (added <= room ? low : high) = middle;
  }
  return WholeCharacters(text_, low);
}

double Filler::TokensAt(int64_t bytes) const {
  KVG_CHECK(bytes <= static_cast<int64_t>(text_.size()), "beyond the filler");
  const auto piece = std::lower_bound(byte_ends_.begin(), byte_ends_.end(), bytes);
  if (bytes == 0 || piece == byte_ends_.end()) return 0;
  const size_t j = static_cast<size_t>(piece - byte_ends_.begin());
  const int64_t begin = j == 0 ? 0 : byte_ends_[j - 1];
  const int64_t before = j == 0 ? 0 : token_ends_[j - 1];
  const double share = static_cast<double>(bytes - begin) / static_cast<double>(*piece - begin);
  return static_cast<double>(before) + share * static_cast<double>(token_ends_[j] - before);
}

int64_t Filler::SentenceEnd(double tokens, int64_t bytes) const {
  int64_t end = 0;
  const auto fits = [tokens](int64_t value) { return static_cast<double>(value) <= tokens; };
  const auto past = std::partition_point(token_ends_.begin(), token_ends_.end(), fits);
  auto j = past - token_ends_.begin();
  while (j > 0 && byte_ends_[static_cast<size_t>(j - 1)] > bytes) --j;
  if (j > 0) end = byte_ends_[static_cast<size_t>(j - 1)];
  return end;
}

int64_t Filler::CharacterEnd(double tokens, int64_t bytes) const {
  int64_t low = 0, high = bytes;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (TokensAt(middle) <= tokens) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return WholeCharacters(text_, low);
}

void Filler::Insert(int64_t bytes, std::string_view text) {
  text_.insert(static_cast<size_t>(bytes), text);
  for (int64_t& end : byte_ends_) {
    if (end > bytes) end += std::ssize(text);
  }
}

void Filler::Erase(int64_t bytes, int64_t size) {
  text_.erase(static_cast<size_t>(bytes), static_cast<size_t>(size));
  for (int64_t& end : byte_ends_) {
    if (end > bytes) end -= size;
  }
}

Filler RepeatingFiller(const TokenCounter* counter, std::vector<std::string> pieces) {
  auto kept = std::make_shared<std::vector<TextPiece>>();
  for (std::string& piece : pieces) kept->push_back({std::move(piece), -1});
  return Filler(counter, [kept](int64_t j) -> TextPiece& {
    return (*kept)[static_cast<size_t>(j % std::ssize(*kept))];
  });
}

std::string Tail::Text(int64_t cut) const {
  if (cut < 0) return "";
  std::string text = frame;
  if (cut == 0) return text;
  text += joint;
  return text.append(filler.text(), 0, static_cast<size_t>(cut));
}

Result<Fit> FitCut(Filler& filler, int64_t budget,
                   const std::function<Result<int64_t>(int64_t cut, int64_t spread)>& count,
                   std::string_view what) {
  KVG_ASSIGN(const int64_t fixed, count(0, 0));
  if (fixed > budget) return TooShort(what, budget, fixed);
  Fit best{0, 0, fixed};
  int64_t spread = -1;
  const auto attempt = [&](int64_t cut) -> Result<int64_t> {
    if (spread < 0) spread = cut;
    KVG_ASSIGN(const int64_t tokens, count(cut, spread));
    if (tokens <= budget && tokens > best.tokens) best = {cut, spread, tokens};
    return tokens;
  };
  const auto done = [&] { return best.tokens >= budget - 1; };
  if (done()) return best;

  int64_t target = budget - fixed, cut = 0;
  std::vector<int64_t> tried;
  for (int guess = 0; guess < kGuesses; ++guess) {
    KVG_ASSIGN(cut, filler.CutFor(std::max<int64_t>(target, 0)));
    if (std::find(tried.begin(), tried.end(), cut) != tried.end()) break;
    tried.push_back(cut);
    KVG_ASSIGN(const int64_t tokens, attempt(cut));
    if (done()) return best;
    target += budget - tokens;
  }
  // The guesses go round in a circle: walk.
  const int64_t start = best.size > 0 ? best.size : cut;
  int64_t up = start, down = start;
  for (int step = 0; step < kLengthNeighbours && !done(); ++step) {
    up = NextCharacter(filler.text(), up);
    KVG_ASSIGN(const int64_t above, attempt(up));
    if (above >= budget - 1 && above <= budget) break;
    if (down == 0) continue;
    down = WholeCharacters(filler.text(), down - 1);
    KVG_ASSIGN(const int64_t below, attempt(down));
    if (below >= budget - 1 && below <= budget) break;
  }
  if (done()) return best;
  const Fit fullest = best;
  for (const std::string_view pad : kPads) {
    std::string pads;
    for (int64_t lacking = budget - fullest.tokens; lacking > 0; --lacking) {
      pads += pad;
      filler.Insert(fullest.size, pads);
      KVG_ASSIGN(const int64_t tokens, attempt(fullest.size + std::ssize(pads)));
      if (tokens <= budget && done()) return best;
      filler.Erase(fullest.size, std::ssize(pads));
      best = fullest;
      if (tokens > budget) break;
    }
  }
  return best;
}

Result<Fit> FitUnits(int64_t budget, int64_t least, int64_t most,
                     const std::function<Result<int64_t>(int64_t units)>& count,
                     std::string_view what) {
  KVG_ASSIGN(const int64_t fixed, count(least));
  if (fixed > budget) return TooShort(what, budget, fixed);
  Fit fits{least, 0, fixed};
  Fit over{most + 1, 0, 0};  // tokens 0: not measured
  // The slope from a few units, then from the two nearest measurements.
  int64_t units = std::min(most, least + std::max<int64_t>(8, least / 4));
  while (fits.tokens < budget && over.size - fits.size > 1) {
    units = std::clamp(units, fits.size + 1, over.size - 1);
    KVG_ASSIGN(const int64_t tokens, count(units));
    const Fit last{units, 0, tokens};
    const Fit other = tokens <= budget ? fits : (over.tokens > 0 ? over : fits);
    (tokens <= budget ? fits : over) = last;
    const double slope = static_cast<double>(tokens - other.tokens) /
                         static_cast<double>(std::max<int64_t>(1, std::abs(units - other.size))) *
                         (units < other.size ? -1.0 : 1.0);
    const double room = static_cast<double>(budget - tokens);
    const double step = slope > 0 ? std::floor(room / slope) : 0;
    units += static_cast<int64_t>(std::clamp(step, -1e12, 1e12));
  }
  return fits;
}

Result<Fit> FitUnits(const TokenCounter& counter, int64_t budget, int64_t least, int64_t most,
                     const std::function<std::string(int64_t units)>& build,
                     std::string_view what) {
  return FitUnits(
      budget, least, most, [&](int64_t units) { return counter.Exact(build(units)); }, what);
}

Result<FilledFit> FitFilled(Filler* filler, int64_t budget, int64_t least, int64_t most,
                            const std::function<Result<int64_t>(int64_t units, int64_t cut)>& count,
                            std::string_view what) {
  KVG_ASSIGN(const Fit whole,
             FitUnits(
                 budget, least, most, [&](int64_t units) { return count(units, -1); }, what));
  // The frame may need the room of a unit, or of more where counts jump.
  FilledFit best{whole.size, -1, whole.tokens};
  if (filler == nullptr) return best;
  for (int64_t less = 0; less <= kFewerUnits && best.tokens < budget - 1; ++less) {
    const int64_t units = whole.size - less;
    if (units < least) break;
    KVG_ASSIGN(const int64_t framed, count(units, 0));
    if (framed > budget) continue;
    KVG_ASSIGN(const Fit fit,
               FitCut(
                   *filler, budget, [&](int64_t cut, int64_t) { return count(units, cut); }, what));
    if (fit.tokens > best.tokens) best = {units, fit.size, fit.tokens};
  }
  return best;
}

Result<FilledFit> FitFilled(const TokenCounter& counter, Filler* filler, int64_t budget,
                            int64_t least, int64_t most,
                            const std::function<std::string(int64_t units, int64_t cut)>& build,
                            std::string_view what) {
  return FitFilled(
      filler, budget, least, most,
      [&](int64_t units, int64_t cut) { return counter.Exact(build(units, cut)); }, what);
}

}  // namespace kvgauge
