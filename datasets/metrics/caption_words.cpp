// SPDX-License-Identifier: Apache-2.0
#include "metrics/caption_words.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kvgauge::metrics {
namespace {

// Words whose full stop belongs to them wherever they stand.
constexpr std::array<TextView, 61> kAbbreviations = {
    U"mr",   U"mrs",    U"ms",  U"dr",    U"prof", U"rev", U"gen", U"col",  U"sgt",
    U"lt",   U"capt",   U"gov", U"sen",   U"rep",  U"hon", U"st",  U"mt",   U"ft",
    U"ave",  U"blvd",   U"rd",  U"inc",   U"corp", U"co",  U"ltd", U"bros", U"jr",
    U"sr",   U"vs",     U"etc", U"nos",   U"jan",  U"feb", U"mar", U"apr",  U"jun",
    U"jul",  U"aug",    U"sep", U"sept",  U"oct",  U"nov", U"dec", U"mon",  U"tue",
    U"tues", U"wed",    U"thu", U"thurs", U"fri",  U"al",  U"fig", U"eq",   U"sec",
    U"ph",   U"messrs", U"pvt", U"cpl",   U"cmdr", U"adm", U"maj"};

// Contractions that are written as one word, and where they part.
struct Parted {
  TextView word;
  size_t at;
};
constexpr std::array<Parted, 8> kParted = {{{U"cannot", 3},
                                            {U"gonna", 3},
                                            {U"gotta", 3},
                                            {U"wanna", 3},
                                            {U"lemme", 3},
                                            {U"gimme", 3},
                                            {U"'tis", 2},
                                            {U"'twas", 2}}};

bool IsQuote(char32_t c) { return c == U'"' || c == U'\'' || c == U'`'; }
bool IsSign(char32_t c) { return c == U',' || c == U';' || c == U':' || c == U'!' || c == U'?'; }
// A token of its own wherever it does not stand within a word.
bool IsSymbol(char32_t c) {
  constexpr TextView kSymbols = U"$#%&*+=~^@_<>|\\/";
  return kSymbols.find(c) != TextView::npos;
}
bool IsWordSign(char32_t c) { return IsLetter(c) || IsDigit(c); }

// "u.s", "a.m": letters with full stops between.
bool IsAcronym(TextView word) {
  if (word.size() < 3 || word.size() % 2 == 0) return word.size() == 1 && IsLetter(word[0]);
  for (size_t i = 0; i < word.size(); ++i) {
    if (i % 2 == 0 ? !IsLetter(word[i]) : word[i] != U'.') return false;
  }
  return true;
}

bool IsNumber(TextView word) { return std::ranges::all_of(word, IsDigit); }
bool IsFraction(TextView word) {
  const size_t slash = word.find(U'/');
  return slash != TextView::npos && slash > 0 && slash + 1 < word.size() &&
         IsNumber(word.substr(0, slash)) && IsNumber(word.substr(slash + 1));
}

class Words {
 public:
  explicit Words(TextView caption) {
    // Signs that stand for others, and white space.
    for (const char32_t c : caption) {
      if (c == U'\u201c' || c == U'\u201d' || c == U'\u201e') {
        text_ += U'"';
      } else if (c == U'\u2018' || c == U'\u2019' || c == U'\u201a') {
        text_ += U'\'';
      } else if (c == U'\u2013' || c == U'\u2014') {
        text_ += U' ';
      } else if (c == U'\u2026') {
        text_ += U"...";
      } else {
        text_ += c;
      }
    }
    text_ = Lower(text_);
    const std::vector<Text> chunks = SplitSpace(text_);
    for (size_t i = 0; i < chunks.size(); ++i) {
      number_follows_ = i + 1 < chunks.size() && IsDigit(chunks[i + 1][0]);
      last_ = i + 1 == chunks.size();
      const size_t before = words_.size();
      Chunk(chunks[i]);
      // "1 1/2" is one number.
      if (i > 0 && before > 0 && words_.size() > before && IsNumber(chunks[i - 1]) &&
          IsFraction(words_[before]) && words_[before - 1] == chunks[i - 1]) {
        words_[before - 1] += U'\u00a0' + words_[before];
        words_.erase(words_.begin() + static_cast<std::ptrdiff_t>(before));
      }
    }
  }
  std::vector<Text> Take() { return std::move(words_); }

 private:
  void Put(TextView word) {
    if (!word.empty()) words_.emplace_back(word);
  }

  // One word, with what stands before and behind it.
  void Chunk(TextView chunk) {
    size_t at = 0;
    while (at < chunk.size()) {
      const char32_t c = chunk[at];
      if (c == U'!' || c == U'?') {
        // One is punctuation, a run of them is not.
        size_t end = at;
        while (end < chunk.size() && (chunk[end] == U'!' || chunk[end] == U'?')) ++end;
        if (end - at > 1) Put(chunk.substr(at, end - at));
        at = end;
        continue;
      }
      if (IsSign(c) || c == U'"' || c == U'`' || c == U'.') {
        ++at;
        continue;
      }
      if (c == U'(' || c == U')' || c == U'[' || c == U']' || c == U'{' || c == U'}') {
        constexpr TextView kOpen = U"([{";
        const bool open = kOpen.find(c) != TextView::npos;
        const char32_t kind = c == U'(' || c == U')' ? U'r' : c == U'[' || c == U']' ? U's' : U'c';
        Put(Text(U"-") + (open ? U'l' : U'r') + kind + U"b-");
        ++at;
        continue;
      }
      if (c == U'-') {
        const bool number = at + 1 < chunk.size() && IsDigit(chunk[at + 1]) && at == 0;
        if (!number) {
          ++at;
          continue;
        }
      }
      if (c == U'\'') {
        if (const size_t end = Apostrophe(chunk, at); end > at) {
          at = end;
          continue;
        }
        ++at;
        continue;
      }
      if (IsSymbol(c)) {
        // "#sunset" and "@home" are words, "#1" is not.
        size_t end = at + 1;
        if ((c == U'#' || c == U'@') && end < chunk.size() && IsLetter(chunk[end])) {
          while (end < chunk.size() && (IsWordSign(chunk[end]) || chunk[end] == U'_')) ++end;
        }
        Put(chunk.substr(at, end - at));
        at = end;
        continue;
      }
      at = Word(chunk, at);
    }
  }

  // What a leading apostrophe begins: "'s", "'90s", "'tis". `at` where it is a quote.
  size_t Apostrophe(TextView chunk, size_t at) {
    const TextView rest = chunk.substr(at);
    for (const Parted& parted : kParted) {
      if (rest.starts_with(parted.word) && parted.word[0] == U'\'' &&
          Ends(rest, parted.word.size())) {
        Put(rest.substr(0, parted.at));
        Put(rest.substr(parted.at, parted.word.size() - parted.at));
        return at + parted.word.size();
      }
    }
    for (const TextView whole :
         {TextView(U"'s"), TextView(U"'m"), TextView(U"'d"), TextView(U"'re"), TextView(U"'ve"),
          TextView(U"'ll"), TextView(U"'em"), TextView(U"'til"), TextView(U"'cause")}) {
      if (rest.starts_with(whole) && Ends(rest, whole.size())) {
        Put(whole);
        return at + whole.size();
      }
    }
    if (rest.starts_with(U"'n'")) {
      Put(rest.substr(0, 3));
      return at + 3;
    }
    const bool inches = at > 0 && IsDigit(chunk[at - 1]);
    if (!inches && rest.size() >= 3 && IsDigit(rest[1]) && IsDigit(rest[2])) {
      size_t end = 3;
      if (end < rest.size() && rest[end] == U's') ++end;
      if (Ends(rest, end)) {
        Put(rest.substr(0, end));
        return at + end;
      }
    }
    return at;
  }
  static bool Ends(TextView text, size_t at) { return at >= text.size() || !IsWordSign(text[at]); }

  // From `at`, where a word begins; returns where what follows it does.
  size_t Word(TextView chunk, size_t at) {
    size_t end = at;
    while (end < chunk.size() && Goes(chunk, at, end)) ++end;
    TextView word = chunk.substr(at, end - at);
    // A full stop that belongs to it.
    const TextView behind = chunk.substr(end);
    if (behind.starts_with(U".")) {
      // "No. 5", and where no sentence could end.
      const bool number =
          number_follows_ ||
          (behind.size() == 1 ? last_
                              : behind[1] == U',' || behind[1] == U';' || behind[1] == U':');
      const bool known = std::ranges::find(kAbbreviations, word) != kAbbreviations.end() ||
                         (word == U"no" && number);
      if (known || IsAcronym(word)) {
        Put(chunk.substr(at, word.size() + 1));
        return end + 1;
      }
    }
    Split(word);
    return end;
  }

  // Whether the sign at `i` goes on with the word that began at `begin`.
  static bool Goes(TextView chunk, size_t begin, size_t i) {
    const char32_t c = chunk[i];
    if (IsWordSign(c)) return true;
    const bool inside = i > begin && i + 1 < chunk.size();
    if (i == begin) return c == U'-' || !(IsSign(c) || IsQuote(c) || IsSymbol(c) || c == U'.');
    const char32_t before = chunk[i - 1], behind = i + 1 < chunk.size() ? chunk[i + 1] : U' ';
    if (c == U',' || c == U':') return inside && IsDigit(before) && IsDigit(behind);
    if (c == U'.') return inside && IsWordSign(before) && IsWordSign(behind);
    if (c == U'\'') {
      return inside && IsWordSign(before) && IsWordSign(behind) &&
             !(IsDigit(before) && IsDigit(behind)) && !chunk.substr(i).starts_with(U"'n'");
    }
    if (c == U'-' || c == U'_' || c == U'/' || c == U'&' || c == U'@') {
      return inside && IsWordSign(before) && IsWordSign(behind);
    }
    return !(IsSign(c) || IsQuote(c) || IsSymbol(c) || c == U'(' || c == U')' || c == U'[' ||
             c == U']' || c == U'{' || c == U'}');
  }

  // A word and its contraction.
  void Split(TextView word) {
    for (const Parted& parted : kParted) {
      if (word == parted.word) {
        Put(word.substr(0, parted.at));
        Put(word.substr(parted.at));
        return;
      }
    }
    if (word == U"y'all") {
      Put(U"y'");
      Put(U"all");
      return;
    }
    if (word.size() > 3 && word.ends_with(U"n't")) {
      Put(word.substr(0, word.size() - 3));
      Put(word.substr(word.size() - 3));
      return;
    }
    for (const TextView end : {TextView(U"'s"), TextView(U"'m"), TextView(U"'d"), TextView(U"'re"),
                               TextView(U"'ve"), TextView(U"'ll")}) {
      if (word.size() > end.size() && word.ends_with(end)) {
        Split(word.substr(0, word.size() - end.size()));
        Put(end);
        return;
      }
    }
    Put(word);
  }

  Text text_;
  bool number_follows_ = false, last_ = false;  // after the chunk at hand; it is the last
  std::vector<Text> words_;
};

}  // namespace

std::vector<Text> CaptionWords(TextView caption) { return Words(caption).Take(); }

}  // namespace kvgauge::metrics
