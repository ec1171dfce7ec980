// SPDX-License-Identifier: Apache-2.0
#include "methods/word_dropping.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

#include "core/check.h"

namespace kvgauge {
namespace {

// What the reference was trained with; a smaller encoder reads less.
constexpr int64_t kMostChunkTokens = 512;
constexpr std::string_view kWordMark = "\u2581";
constexpr std::string_view kChunkEnds[] = {".", "\n"};

// A number as Python has it there: of NumPy's float32, or its own where a rule says 0 or 1.
struct Chance {
  float value = 0;
  bool plain = false;
};

struct ChunkWord {
  std::string spelling;
  std::vector<Chance> tokens;
  Chance chance = {};
};

// The value of each decimal digit's block: Nd of Unicode 14.0, which Python 3.11 knows.
bool IsDecimalDigit(char32_t c) {
  constexpr char32_t kZeros[] = {
      0x30,    0x660,   0x6f0,   0x7c0,   0x966,   0x9e6,   0xa66,   0xae6,   0xb66,   0xbe6,
      0xc66,   0xce6,   0xd66,   0xde6,   0xe50,   0xed0,   0xf20,   0x1040,  0x1090,  0x17e0,
      0x1810,  0x1946,  0x19d0,  0x1a80,  0x1a90,  0x1b50,  0x1bb0,  0x1c40,  0x1c50,  0xa620,
      0xa8d0,  0xa900,  0xa9d0,  0xa9f0,  0xaa50,  0xabf0,  0xff10,  0x104a0, 0x10d30, 0x11066,
      0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0,
      0x11950, 0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2,
      0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0};
  const auto* above = std::ranges::upper_bound(kZeros, c);
  return above != std::begin(kZeros) && c - *(above - 1) < 10;
}

// Precondition: well-formed UTF-8.
bool HasDigit(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<uint8_t>(text[at]);
    const size_t width = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    char32_t c = width == 1 ? lead : lead & (0x7fu >> width);
    for (size_t i = 1; i < width && at + i < text.size(); ++i) {
      c = c << 6 | (static_cast<uint8_t>(text[at + i]) & 0x3fu);
    }
    if (IsDecimalDigit(c)) return true;
    at += width;
  }
  return false;
}

std::string WithReplaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  for (size_t found = text.find(what); found != std::string_view::npos; found = text.find(what)) {
    out.append(text.substr(0, found)).append(by);
    text.remove_prefix(found + what.size());
  }
  return out.append(text);
}

bool Holds(std::span<const std::string> list, std::string_view text) {
  return std::ranges::find(list, text) != list.end();
}

// NumPy's percentile, interpolated in the type that its array has. Precondition: some numbers.
template <class T>
double Interpolated(std::vector<T> numbers, int percent) {
  std::ranges::sort(numbers);
  const double at = static_cast<double>(numbers.size() - 1) * (percent / 100.0);
  if (at >= static_cast<double>(numbers.size() - 1)) return double{numbers.back()};
  const auto below = static_cast<size_t>(at);
  const double share = at - std::floor(at);
  const T low = numbers[below], high = numbers[below + 1], more = high - low;
  if (share >= 0.5) return double{high - more * static_cast<T>(1 - share)};
  return double{low + more * static_cast<T>(share)};
}

double Percentile(std::span<const Chance> chances, int percent) {
  percent = std::min(percent, 100);
  if (std::ranges::any_of(chances, &Chance::plain)) {
    std::vector<double> numbers;
    for (const Chance& chance : chances) numbers.push_back(double{chance.value});
    return Interpolated(std::move(numbers), percent);
  }
  std::vector<float> numbers;
  for (const Chance& chance : chances) numbers.push_back(chance.value);
  return Interpolated(std::move(numbers), percent);
}

class WordDropper {
 public:
  WordDropper(const WordRules& rules, double reduce, TokenTagger& tagger, const TextEncoder& count)
      : rules_(rules),
        reduce_(reduce),
        tagger_(tagger),
        count_(count),
        most_tokens_(std::min(kMostChunkTokens, tagger.most_tokens())) {}

  Result<DroppedWords> Run(std::string_view text) {
    KVG_TRY(FindMarks());
    KVG_ASSIGN(const std::vector<std::string> chunks, Chunks(text));
    for (const std::string& chunk : chunks) {
      KVG_ASSIGN(std::vector<ChunkWord> words, Words(chunk));
      if (!words.empty()) KVG_TRY(Drop(words));
    }
    return std::move(dropped_);
  }

 private:
  // What the tokenizer has no token of its own for gets a mark.
  Status FindMarks() {
    KVG_CHECK(std::ssize(rules_.forced) <= TokenTagger::kMarks, "more forced words than marks");
    for (size_t i = 0; i < rules_.forced.size(); ++i) {
      KVG_ASSIGN(const std::vector<TaggerToken> tokens, tagger_.Cut(rules_.forced[i]));
      if (tokens.size() == 1) continue;
      marked_.push_back(rules_.forced[i]);
      marks_.push_back(TokenTagger::Mark(static_cast<int64_t>(i)));
    }
    for (const std::string_view end : kChunkEnds) {
      chunk_ends_.emplace_back(end);
      const auto marked = std::ranges::find(marked_, end);
      if (marked == marked_.end()) continue;
      chunk_ends_.push_back(marks_[static_cast<size_t>(marked - marked_.begin())]);
    }
    return {};
  }

  Result<std::vector<std::string>> Chunks(std::string_view text) const {
    std::string with_marks(text);
    for (size_t i = 0; i < marks_.size(); ++i) {
      with_marks = WithReplaced(with_marks, marked_[i], marks_[i]);
    }
    KVG_ASSIGN(const std::vector<TaggerToken> tokens, tagger_.Cut(with_marks));
    std::vector<std::string> spellings, chunks;
    for (const TaggerToken& token : tokens) spellings.push_back(token.spelling);
    const auto count = std::ssize(spellings);
    const int64_t most = most_tokens_ - 2;  // without the tokens around the text
    for (int64_t begin = 0; begin < count;) {
      int64_t last = count - 1;
      if (begin + most < count) {
        last = begin + most;
        // The first token of a chunk does not end it.
        const auto ends = [&](int64_t at) {
          return Holds(chunk_ends_, spellings[static_cast<size_t>(at)]);
        };
        for (int64_t at = last; at > begin; --at) {
          if (!ends(at)) continue;
          last = at;
          break;
        }
      }
      chunks.push_back(tagger_.Join(std::span(spellings).subspan(
          static_cast<size_t>(begin), static_cast<size_t>(last + 1 - begin))));
      begin = last + 1;
    }
    return chunks;
  }

  bool BeginsWord(std::string_view token) const {
    if (tagger_.word_spelling() == WordSpelling::kContinued) {
      const std::string_view pure = Pure(token);
      return Holds(rules_.forced, pure) || Holds(marks_, pure) || !token.starts_with("##");
    }
    constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    // The reference asks whether the token is a part of that list.
    return kPunctuation.find(token) != std::string_view::npos || Holds(rules_.forced, token) ||
           Holds(marks_, token) || token.starts_with(kWordMark);
  }

  // Without what says where words begin; all of it, as in the reference.
  std::string_view Pure(std::string_view token) const {
    const std::string_view mark =
        tagger_.word_spelling() == WordSpelling::kContinued ? "#" : kWordMark;
    while (token.starts_with(mark)) token.remove_prefix(mark.size());
    return token;
  }

  Result<std::vector<ChunkWord>> Words(std::string_view chunk) {
    KVG_ASSIGN(const std::vector<TaggerToken> tokens, tagger_.Cut(chunk));
    std::vector<int32_t> ids;
    for (const TaggerToken& token : tokens) ids.push_back(token.id);
    KVG_ASSIGN(const std::vector<float> chances, tagger_.Chances(ids, rules_.edges));
    std::vector<ChunkWord> words;
    for (size_t i = 0; i < chances.size(); ++i) {
      if (tokens[i].special) continue;
      std::string token = tokens[i].spelling;
      const std::string_view pure = Pure(token);
      Chance chance = {chances[i]};
      if (BeginsWord(token) || words.empty()) {
        if (Holds(rules_.forced, pure) || Holds(marks_, pure)) chance = {1, true};
        for (size_t m = 0; m < marks_.size(); ++m) {
          token = WithReplaced(token, marks_[m], marked_[m]);
        }
        if (rules_.forced_digits && HasDigit(token)) chance = {1, true};
        words.push_back({std::move(token), {chance}});
      } else {
        if (rules_.forced_digits && HasDigit(token)) chance = {1, true};
        words.back().spelling += pure;
        words.back().tokens.push_back(chance);
      }
    }
    for (ChunkWord& word : words) word.chance = ChanceOf(word.tokens);
    return words;
  }

  Chance ChanceOf(std::span<const Chance> tokens) const {
    if (rules_.by_first_token) return tokens[0];
    Chance sum = {0, true};
    for (const Chance& token : tokens) {
      sum = {sum.value + token.value, sum.plain && token.plain};
    }
    // Plain ones are all 1.
    if (sum.plain) return {1, true};
    return {sum.value / static_cast<float>(tokens.size())};
  }

  // A forced word that follows itself, with nothing that stays in between, counts no more.
  void DropRepeated(std::span<ChunkWord> words) const {
    std::vector<Chance> chances;
    for (const ChunkWord& word : words) chances.push_back(word.chance);
    const double least = Percentile(chances, static_cast<int>(100 * reduce_));
    bool between = false;
    std::string_view before;
    bool seen = false;
    for (ChunkWord& word : words) {
      if (!Holds(rules_.forced, word.spelling)) {
        between |= double{word.chance.value} > least;
        continue;
      }
      if (between) {
        between = false;
      } else if (seen && before == word.spelling) {
        word.chance = {0, true};
      }
      before = word.spelling;
      seen = true;
    }
  }

  Status Drop(std::vector<ChunkWord>& words) {
    if (rules_.drop_consecutive) DropRepeated(words);
    std::vector<Chance> counted;
    for (const ChunkWord& word : words) {
      KVG_ASSIGN(const std::vector<int32_t> ids, count_(word.spelling));
      counted.insert(counted.end(), ids.size(), word.chance);
    }
    const double most =
        counted.empty() ? 0 : Percentile(counted, static_cast<int>(100 * reduce_ + 1));
    std::vector<std::string> kept;
    for (ChunkWord& word : words) {
      const double chance = double{word.chance.value};
      bool stays = chance > most || (most == 1 && chance == most);
      if (stays && rules_.drop_consecutive && Holds(rules_.forced, word.spelling)) {
        stays = kept.empty() || kept.back() != word.spelling;
      }
      if (stays) kept.push_back(word.spelling);
      dropped_.words.push_back(std::move(word.spelling));
      dropped_.stays.push_back(stays);
    }
    dropped_.text += tagger_.Join(kept);
    return {};
  }

  const WordRules& rules_;
  double reduce_;
  TokenTagger& tagger_;
  const TextEncoder& count_;
  int64_t most_tokens_;
  std::vector<std::string> marked_, marks_;  // what marks stand for, and they
  std::vector<std::string> chunk_ends_;
  DroppedWords dropped_;
};

}  // namespace

Result<DroppedWords> DropWords(std::string_view text, const WordRules& rules, double reduce,
                               TokenTagger& tagger, const TextEncoder& count) {
  KVG_CHECK(reduce > 0 && reduce <= 1, "a share that leaves");
  return WordDropper(rules, reduce, tagger, count).Run(text);
}

}  // namespace kvgauge
