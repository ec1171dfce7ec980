// SPDX-License-Identifier: Apache-2.0
// Each rule rewrites the whole text, so the order of the rules is part of them.
#include "metrics/nltk_words.h"

#include <array>

#include "metrics/nltk_text.h"

namespace kvgauge::metrics::nltk {
namespace {

enum class Rules { kNltk, kPywsd };

// re.sub: `match(text, at, out)` appends what stands for the characters from `at` on and says how
// many these are, or 0 where the pattern does not match.
template <class Match>
void Rewrite(Text& text, Match match) {
  Text out;
  out.reserve(text.size() + text.size() / 4);
  for (size_t at = 0; at < text.size();) {
    const size_t used = match(TextView(text), at, out);
    if (used == 0) out.push_back(text[at]);
    at += std::max<size_t>(used, 1);
  }
  text = std::move(out);
}

void AddPadded(Text& out, TextView part) {
  out.push_back(' ');
  out += part;
  out.push_back(' ');
}

// Blanks around each character of `all`.
void PadEach(Text& text, TextView all) {
  Rewrite(text, [all](TextView from, size_t at, Text& out) -> size_t {
    if (!Among(all, from[at])) return 0;
    AddPadded(out, from.substr(at, 1));
    return 1;
  });
}

// Blanks around each `part`.
void PadPart(Text& text, TextView part, TextView as) {
  Rewrite(text, [part, as](TextView from, size_t at, Text& out) -> size_t {
    if (!from.substr(at).starts_with(part)) return 0;
    AddPadded(out, as);
    return part.size();
  });
}

size_t RunOf(TextView text, size_t at, TextView all) {
  size_t end = at;
  while (end < text.size() && Among(all, text[end])) ++end;
  return end - at;
}

// Blanks around each run of `of` that has `least` characters or more.
void PadRuns(Text& text, TextView of, size_t least) {
  Rewrite(text, [of, least](TextView from, size_t at, Text& out) -> size_t {
    const size_t run = RunOf(from, at, of);
    if (run < least) return 0;
    AddPadded(out, from.substr(at, run));
    return run;
  });
}

// An apostrophe before a word is a quote, unless it begins a clitic.
bool OpensQuote(TextView text, size_t at) {
  if (text[at] != '\'' || (at > 0 && IsRegexWord(text[at - 1]))) return false;
  if (at + 1 == text.size() || !IsRegexWord(text[at + 1])) return false;
  // The long s is an s where case does not matter.
  const auto as_ascii = [](char32_t c) {
    return c == 0x17F ? U's' : c >= 'A' && c <= 'Z' ? c + 32 : c;
  };
  for (const TextView clitic : {U"re", U"ve", U"ll", U"m", U"t", U"s", U"d", U"n"}) {
    const size_t end = at + 1 + clitic.size();
    if (end > text.size() || (end < text.size() && IsRegexWord(text[end]))) continue;
    size_t same = 0;
    while (same < clitic.size() && as_ascii(text[at + 1 + same]) == clitic[same]) ++same;
    if (same == clitic.size()) return false;
  }
  return true;
}

void StartingQuotes(Text& text, Rules rules) {
  Rewrite(text, [](TextView from, size_t at, Text& out) -> size_t {
    const size_t run = Among(U"\u00ab\u201c\u2018\u201e", from[at]) ? 1 : RunOf(from, at, U"`");
    if (run > 0) AddPadded(out, from.substr(at, run));
    return run;
  });
  if (text.starts_with(U'"')) text.replace(0, 1, U"``");
  PadPart(text, U"``", U"``");
  Rewrite(text, [](TextView from, size_t at, Text& out) -> size_t {
    if (!Among(U" ([{<", from[at])) return 0;
    const TextView behind = from.substr(at + 1);
    const size_t quote = behind.starts_with(U'"') ? 1 : behind.starts_with(U"''") ? 2 : 0;
    if (quote == 0) return 0;
    out.push_back(from[at]);
    out += U" `` ";
    return 1 + quote;
  });
  if (rules == Rules::kPywsd) return;
  Rewrite(text, [](TextView from, size_t at, Text& out) -> size_t {
    if (!OpensQuote(from, at)) return 0;
    out += U"' ";
    return 1;
  });
}

// The full stop that ends the text, with the `closing` characters behind it, parts from its word.
void LastStop(Text& text, Rules rules, TextView closing, TextView between) {
  const size_t stop = text.rfind('.');
  if (stop == Text::npos || stop == 0 || text[stop - 1] == '.') return;
  const size_t closed = RunOf(text, stop + 1, closing);
  const TextView rest = TextView(text).substr(stop + 1 + closed);
  const auto space = rules == Rules::kNltk ? IsRegexSpace : IsSpace;
  // A line break that ends the text stands behind its end.
  if (!std::ranges::all_of(rest, space)) return;
  const Text behind = text.substr(stop + 1, closed);
  text.resize(stop);
  text += U" .";
  text += between;
  text += behind;
  text.push_back(' ');
}

void Punctuation(Text& text, Rules rules) {
  const bool nltk = rules == Rules::kNltk;
  LastStop(text, rules, U"])}>\"'\u00bb\u201d\u2019 ", U" ");
  Rewrite(text, [](TextView from, size_t at, Text& out) -> size_t {
    if (!Among(U":,", from[at]) || at + 1 == from.size() || IsDigit(from[at + 1])) return 0;
    out.push_back(' ');
    out.push_back(from[at]);
    out.push_back(' ');
    out.push_back(from[at + 1]);
    return 2;
  });
  Rewrite(text, [](TextView from, size_t at, Text& out) -> size_t {
    const TextView rest = from.substr(at + 1);
    if (!Among(U":,", from[at]) || !(rest.empty() || rest == U"\n")) return 0;
    AddPadded(out, from.substr(at, 1));
    return 1;
  });
  if (nltk) {
    PadRuns(text, U".", 2);
  } else {
    PadPart(text, U"...", U"...");
  }
  PadEach(text, U";@#$%&");
  if (nltk) PadEach(text, U"\u2012\u2013\u2014\u2015");
  LastStop(text, rules, U"])}>\"'", U"");
  PadEach(text, U"?!");
  Rewrite(text, [](TextView from, size_t at, Text& out) -> size_t {
    if (from[at] == '\'' || !from.substr(at + 1).starts_with(U"' ")) return 0;
    out.push_back(from[at]);
    out += U" ' ";
    return 3;
  });
  if (nltk) PadEach(text, U"*");
}

// The length of the clitic that begins at `at`, which a blank ends; 0 where none does.
size_t ShortClitic(TextView text, size_t at) {
  if (at >= text.size() || text[at] != '\'') return 0;
  const TextView behind = text.substr(at + 1);
  if (behind.size() > 1 && Among(U"sSmMdD", behind[0]) && behind[1] == ' ') return 2;
  return behind.starts_with(' ') ? 1 : 0;
}

size_t LongClitic(TextView text, size_t at) {
  static constexpr TextView kClitics[] = {U"'ll", U"'LL", U"'re", U"'RE",
                                          U"'ve", U"'VE", U"n't", U"N'T"};
  if (at >= text.size()) return 0;
  const TextView rest = text.substr(at);
  for (const TextView clitic : kClitics) {
    if (rest.starts_with(clitic) && rest.substr(clitic.size()).starts_with(' ')) {
      return clitic.size();
    }
  }
  return 0;
}

void PartClitics(Text& text, size_t (*clitic)(TextView text, size_t at)) {
  Rewrite(text, [clitic](TextView from, size_t at, Text& out) -> size_t {
    if (from[at] == '\'' || from[at] == ' ') return 0;
    const size_t size = clitic(from, at + 1);
    if (size == 0) return 0;
    out.push_back(from[at]);
    AddPadded(out, from.substr(at + 1, size));
    return size + 2;
  });
}

void EndingQuotes(Text& text, Rules rules) {
  if (rules == Rules::kNltk) {
    PadEach(text, U"\u00bb\u201d\u2019");
    PadPart(text, U"''", U"''");
    PadPart(text, U"\"", U"''");
    Rewrite(text, [](TextView from, size_t at, Text& out) -> size_t {
      size_t end = at;
      while (end < from.size() && IsRegexSpace(from[end])) ++end;
      if (end > at) out.push_back(' ');
      return end - at;
    });
  } else {
    PadRuns(text, U"\u00bb\u201d\u2019", 1);
    PadPart(text, U"\"", U"''");
    Rewrite(text, [](TextView from, size_t at, Text& out) -> size_t {
      if (IsSpace(from[at]) || !from.substr(at + 1).starts_with(U"''")) return 0;
      out.push_back(from[at]);
      out += U" '' ";
      return 3;
    });
  }
  PartClitics(text, ShortClitic);
  PartClitics(text, LongClitic);
}

// Whether `text` begins with `word` in any case, as Python's `re` compares: a long s is an s, an i
// without its dot or with a dot too many is an i.
bool BeginsWith(TextView text, TextView word) {
  if (text.size() < word.size()) return false;
  for (size_t i = 0; i < word.size(); ++i) {
    char32_t c = text[i];
    if (c >= 'A' && c <= 'Z') c += 32;
    if (c == 0x17F) c = 's';
    if (c == 0x130 || c == 0x131) c = 'i';
    if (c != word[i]) return false;
  }
  return true;
}

enum class Behind { kNoWord, kSpace, kSpaceTaken };

struct Contraction {
  TextView front, back;
  Behind behind = Behind::kNoWord;
};

// Contractions that are written as one word. One that begins with a blank takes it along.
void PartContraction(Text& text, const Contraction& contraction) {
  const bool blank = contraction.front.starts_with(' ');
  const Text whole = Text(contraction.front) + Text(contraction.back);
  Rewrite(text, [&](TextView from, size_t at, Text& out) -> size_t {
    if (!BeginsWith(from.substr(at), whole)) return 0;
    if (!blank && at > 0 && IsWord(from[at - 1])) return 0;
    const size_t end = at + whole.size();
    if (contraction.behind == Behind::kNoWord) {
      if (end < from.size() && IsWord(from[end])) return 0;
    } else if (end == from.size() || !IsSpace(from[end])) {
      return 0;
    }
    const TextView found = from.substr(at, whole.size());
    const size_t skip = blank ? 1 : 0, front = contraction.front.size();
    out.push_back(' ');
    out += found.substr(skip, front - skip);
    AddPadded(out, found.substr(front));
    return whole.size() + (contraction.behind == Behind::kSpaceTaken ? 1 : 0);
  });
}

void PartContractions(Text& text, Rules rules) {
  const bool nltk = rules == Rules::kNltk;
  const std::array<Contraction, 10> all = {
      {{U"can", U"not"},
       {U"d", U"'ye"},
       {U"gim", U"me"},
       {U"gon", U"na"},
       {U"got", U"ta"},
       {U"lem", U"me"},
       {nltk ? U"more" : U"mor", U"'n"},
       {U"wan", U"na", nltk ? Behind::kSpace : Behind::kSpaceTaken},
       {U" 't", U"is"},
       {U" 't", U"was"}}};
  for (const Contraction& contraction : all) PartContraction(text, contraction);
}

std::vector<Text> WordsOf(TextView sentence, Rules rules) {
  Text text(sentence);
  StartingQuotes(text, rules);
  Punctuation(text, rules);
  PadEach(text, U"][(){}<>");
  PadPart(text, U"--", U"--");
  text = U" " + text + U" ";
  EndingQuotes(text, rules);
  PartContractions(text, rules);
  return SplitSpace(text);
}

}  // namespace

std::vector<Text> NltkWords(TextView sentence) { return WordsOf(sentence, Rules::kNltk); }
std::vector<Text> PywsdWords(TextView sentence) { return WordsOf(sentence, Rules::kPywsd); }

}  // namespace kvgauge::metrics::nltk
