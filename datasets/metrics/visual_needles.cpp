// SPDX-License-Identifier: Apache-2.0
// Rules of needles and demonstrations among pictures: Visual Haystacks, V-NIAH, VL-ICL.
#include "metrics/text.h"

namespace kvgauge::metrics::visual_needles {
namespace {

constexpr const char* kVhs = "vhs_benchmark utils.py, commit 1a9abb5, with nltk 3.10.4";
constexpr const char* kVlIcl = "VL-ICL evals/eval.py, commit 2b77eee";

bool Among(TextView all, char32_t c) { return all.find(c) != TextView::npos; }

// Signs that are words of their own wherever they stand.
constexpr TextView kAlone = U";@#$%&?!*[](){}<>`\"\u00ab\u00bb\u201c\u201d\u2018\u2019\u201e";
// What may stand between the full stop of a sentence and its end.
constexpr TextView kClosing = U"])}>\"'\u00bb\u201d\u2019 ";

// Whether another word begins at `at`, whatever stands before it.
bool Separates(TextView text, size_t at) {
  if (at >= text.size()) return true;
  const char32_t c = text[at];
  const TextView rest = text.substr(at);
  if (IsSpace(c) || Among(kAlone, c)) return true;
  if (rest.starts_with(U"--") || rest.starts_with(U"''")) return true;
  const char32_t next = rest.size() > 1 ? rest[1] : U' ';
  if (c == ':' || c == ',') return !IsDigit(next);
  if (c != '.') return false;
  // Several are one sign. One alone is the end of a sentence, or a part of the word.
  if (next == '.' || IsSpace(next) || Among(U")\";}]*:@'({[!?", next)) return true;
  size_t end = 1;
  while (end < rest.size() && (Among(kClosing, rest[end]) || IsSpace(rest[end]))) ++end;
  return end == rest.size();
}

// Whether the word that ends before `at` ends there for the tokenizer.
bool EndsAt(TextView text, size_t at) {
  if (Separates(text, at)) return true;
  const TextView rest = text.substr(at);
  for (const TextView part : {U"'ll", U"'re", U"'ve", U"n't", U"'s", U"'m", U"'d", U"'"}) {
    if (rest.starts_with(part) && Separates(text, at + part.size())) return true;
  }
  return false;
}

// Whether a word that begins at `at` does so for the tokenizer.
bool BeginsAt(TextView text, size_t at) {
  if (at == 0) return true;
  const char32_t c = text[at - 1];
  const TextView before = text.substr(0, at);
  if (IsSpace(c) || Among(kAlone, c)) return true;
  // Every second one of colons and commas in a row stays with what follows.
  size_t signs = 0;
  while (signs < at && (text[at - 1 - signs] == ':' || text[at - 1 - signs] == ',')) ++signs;
  if (signs > 0) return signs % 2 == 1;
  if (c == '\'') return at == 1 || !IsWord(text[at - 2]);
  return before.ends_with(U"--") || before.ends_with(U"..");
}

bool HasToken(TextView text, TextView word) {
  for (size_t at = text.find(word); at != TextView::npos; at = text.find(word, at + 1)) {
    if (BeginsAt(text, at) && EndsAt(text, at + word.size())) return true;
  }
  return false;
}

double HaystackAnswer(TextView prediction, TextView answer) {
  return HasToken(Lower(prediction), answer) ? 1 : 0;
}
double EqualAsItIs(TextView prediction, TextView answer) { return prediction == answer ? 1 : 0; }

// Up to the first line break, or where there is none behind the front up to the first full stop.
TextView FirstPart(TextView given) {
  const TextView text = Strip(given);
  size_t end = text.find('\n');
  if (end == TextView::npos || end == 0) end = text.find('.');
  return end == TextView::npos || end == 0 ? text : text.substr(0, end);
}

double Exact(TextView prediction, TextView answer) {
  return Lower(FirstPart(prediction)) == Lower(answer) ? 1 : 0;
}

double Number(TextView prediction, TextView answer) {
  const std::vector<TextView> runs = DigitRuns(FirstPart(prediction));
  return Lower(runs.empty() ? TextView() : runs[0]) == Lower(answer) ? 1 : 0;
}

double YesOrNot(TextView prediction, TextView answer) {
  const bool yes = Lower(FirstPart(prediction)).find(U"yes") != Text::npos;
  const Text want = Lower(answer);
  return (want == U"yes" && yes) || (want == U"no" && !yes) ? 1 : 0;
}

}  // namespace

KVG_REGISTER_METRIC(haystack_word,
                    {"haystack_word", 1,
                     "the answer is a word of the prediction, as nltk's word tokenizer splits it "
                     "behind an untrained sentence splitter",
                     kVhs, BestOf(HaystackAnswer)});
KVG_REGISTER_METRIC(equal_as_it_is, {"equal_as_it_is", 1, "equal, white space included",
                                     "LongVA eval_vision_niah.py, commit f4c8781: equal tokens",
                                     BestOf(EqualAsItIs)});
KVG_REGISTER_METRIC(vl_icl_exact,
                    {"vl_icl_exact", 1, "equal in any case up to the first line break or full stop",
                     kVlIcl, BestOf(Exact)});
KVG_REGISTER_METRIC(vl_icl_number, {"vl_icl_number", 1, "the first number there is the answer",
                                    kVlIcl, BestOf(Number)});
KVG_REGISTER_METRIC(vl_icl_yes, {"vl_icl_yes", 1, "whether yes stands there is as it should be",
                                 kVlIcl, BestOf(YesOrNot)});

}  // namespace kvgauge::metrics::visual_needles
