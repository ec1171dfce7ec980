// SPDX-License-Identifier: Apache-2.0
#include "metrics/porter.h"

#include <span>

namespace kvgauge::metrics {
namespace {

bool IsConsonant(TextView word, size_t at) {
  // A y is a consonant at the start and after a vowel: follow a run of them to its beginning.
  bool flip = false;
  while (word[at] == 'y' && at > 0) {
    flip = !flip;
    --at;
  }
  const bool vowel = TextView(U"aeiou").find(word[at]) != TextView::npos;
  return vowel == flip;
}

// How many times a vowel is followed by a consonant.
int Measure(TextView stem) {
  int measure = 0;
  bool after_vowel = false;
  for (size_t i = 0; i < stem.size(); ++i) {
    const bool consonant = IsConsonant(stem, i);
    if (after_vowel && consonant) ++measure;
    after_vowel = !consonant;
  }
  return measure;
}

bool Positive(TextView stem) { return Measure(stem) > 0; }
bool AboveOne(TextView stem) { return Measure(stem) > 1; }

bool HasVowel(TextView stem) {
  for (size_t i = 0; i < stem.size(); ++i) {
    if (!IsConsonant(stem, i)) return true;
  }
  return false;
}

bool EndsDouble(TextView word) {
  const size_t n = word.size();
  return n >= 2 && word[n - 1] == word[n - 2] && IsConsonant(word, n - 1);
}

// Consonant, vowel, consonant other than w, x, y; or a whole word of vowel and consonant.
bool EndsShort(TextView word) {
  const size_t n = word.size();
  if (n == 2) return !IsConsonant(word, 0) && IsConsonant(word, 1);
  return n >= 3 && IsConsonant(word, n - 3) && !IsConsonant(word, n - 2) &&
         IsConsonant(word, n - 1) && TextView(U"wxy").find(word[n - 1]) == TextView::npos;
}

struct Rule {
  TextView suffix, replacement;
  bool (*condition)(TextView stem) = nullptr;
};

TextView Without(TextView word, size_t last) { return word.substr(0, word.size() - last); }

// The first suffix that matches decides, whether its condition holds or not.
Text Apply(TextView word, std::span<const Rule> rules) {
  for (const Rule& rule : rules) {
    if (!word.ends_with(rule.suffix)) continue;
    const TextView stem = Without(word, rule.suffix.size());
    if (rule.condition != nullptr && !rule.condition(stem)) return Text(word);
    return Text(stem) += rule.replacement;
  }
  return Text(word);
}

Text Plurals(TextView word) {
  if (word.size() == 4 && word.ends_with(U"ies")) return Text(Without(word, 1));
  static constexpr Rule kRules[] = {{U"sses", U"ss"}, {U"ies", U"i"}, {U"ss", U"ss"}, {U"s", U""}};
  return Apply(word, kRules);
}

Text PastAndProgressive(TextView word) {
  if (word.ends_with(U"ied")) return Text(Without(word, word.size() == 4 ? 1 : 2));
  if (word.ends_with(U"eed")) {
    return Text(Positive(Without(word, 3)) ? Without(word, 1) : word);
  }
  TextView stem;
  bool found = false;
  for (const TextView suffix : {TextView(U"ed"), TextView(U"ing")}) {
    if (found || !word.ends_with(suffix)) continue;
    stem = Without(word, suffix.size());
    found = HasVowel(stem);
  }
  if (!found) return Text(word);
  for (const TextView ending : {TextView(U"at"), TextView(U"bl"), TextView(U"iz")}) {
    if (stem.ends_with(ending)) return Text(stem) += U'e';
  }
  if (EndsDouble(stem)) {
    const bool keeps = TextView(U"lsz").find(stem.back()) != TextView::npos;
    return Text(keeps ? stem : Without(stem, 1));
  }
  if (Measure(stem) == 1 && EndsShort(stem)) return Text(stem) += U'e';
  return Text(stem);
}

Text FinalY(TextView word) {
  static constexpr Rule kRules[] = {{U"y", U"i", [](TextView stem) {
                                       return stem.size() > 1 && IsConsonant(stem, stem.size() - 1);
                                     }}};
  return Apply(word, kRules);
}

Text DoubleSuffixes(TextView word) {
  if (word.ends_with(U"alli") && Positive(Without(word, 4))) {
    return DoubleSuffixes(Without(word, 2));
  }
  // "logi" is judged with its l still on the stem.
  if (word.ends_with(U"logi")) return Text(Positive(Without(word, 3)) ? Without(word, 1) : word);
  static constexpr Rule kRules[] = {{U"ational", U"ate", Positive}, {U"tional", U"tion", Positive},
                                    {U"enci", U"ence", Positive},   {U"anci", U"ance", Positive},
                                    {U"izer", U"ize", Positive},    {U"bli", U"ble", Positive},
                                    {U"alli", U"al", Positive},     {U"entli", U"ent", Positive},
                                    {U"eli", U"e", Positive},       {U"ousli", U"ous", Positive},
                                    {U"ization", U"ize", Positive}, {U"ation", U"ate", Positive},
                                    {U"ator", U"ate", Positive},    {U"alism", U"al", Positive},
                                    {U"iveness", U"ive", Positive}, {U"fulness", U"ful", Positive},
                                    {U"ousness", U"ous", Positive}, {U"aliti", U"al", Positive},
                                    {U"iviti", U"ive", Positive},   {U"biliti", U"ble", Positive},
                                    {U"fulli", U"ful", Positive}};
  return Apply(word, kRules);
}

Text MoreSuffixes(TextView word) {
  static constexpr Rule kRules[] = {{U"icate", U"ic", Positive}, {U"ative", U"", Positive},
                                    {U"alize", U"al", Positive}, {U"iciti", U"ic", Positive},
                                    {U"ical", U"ic", Positive},  {U"ful", U"", Positive},
                                    {U"ness", U"", Positive}};
  return Apply(word, kRules);
}

Text LastSuffixes(TextView word) {
  static constexpr Rule kRules[] = {
      {U"al", U"", AboveOne},
      {U"ance", U"", AboveOne},
      {U"ence", U"", AboveOne},
      {U"er", U"", AboveOne},
      {U"ic", U"", AboveOne},
      {U"able", U"", AboveOne},
      {U"ible", U"", AboveOne},
      {U"ant", U"", AboveOne},
      {U"ement", U"", AboveOne},
      {U"ment", U"", AboveOne},
      {U"ent", U"", AboveOne},
      {U"ion", U"",
       [](TextView stem) { return AboveOne(stem) && (stem.back() == 's' || stem.back() == 't'); }},
      {U"ou", U"", AboveOne},
      {U"ism", U"", AboveOne},
      {U"ate", U"", AboveOne},
      {U"iti", U"", AboveOne},
      {U"ous", U"", AboveOne},
      {U"ive", U"", AboveOne},
      {U"ize", U"", AboveOne}};
  return Apply(word, kRules);
}

Text FinalE(TextView word) {
  if (!word.ends_with(U'e')) return Text(word);
  const TextView stem = Without(word, 1);
  const int measure = Measure(stem);
  return Text(measure > 1 || (measure == 1 && !EndsShort(stem)) ? stem : word);
}

Text FinalL(TextView word) {
  return Text(word.ends_with(U"ll") && AboveOne(Without(word, 1)) ? Without(word, 1) : word);
}

constexpr struct {
  TextView word, stem;
} kIrregular[] = {{U"sky", U"sky"},        {U"skies", U"sky"},        {U"dying", U"die"},
                  {U"lying", U"lie"},      {U"tying", U"tie"},        {U"news", U"news"},
                  {U"innings", U"inning"}, {U"inning", U"inning"},    {U"outings", U"outing"},
                  {U"outing", U"outing"},  {U"cannings", U"canning"}, {U"canning", U"canning"},
                  {U"howe", U"howe"},      {U"proceed", U"proceed"},  {U"exceed", U"exceed"},
                  {U"succeed", U"succeed"}};

}  // namespace

Text PorterStem(TextView word) {
  for (const auto& entry : kIrregular) {
    if (word == entry.word) return Text(entry.stem);
  }
  if (word.size() <= 2) return Text(word);
  Text stem(word);
  for (const auto step : {Plurals, PastAndProgressive, FinalY, DoubleSuffixes, MoreSuffixes,
                          LastSuffixes, FinalE, FinalL}) {
    stem = step(stem);
  }
  return stem;
}

}  // namespace kvgauge::metrics
