// SPDX-License-Identifier: Apache-2.0
// Text as the reference packages see it: Python strings, that is sequences of code points with
// Python's own ideas of white space, digits, word characters and lower case. Exact for every code
// point of Unicode 14 (Python 3.11); later ones are as utf8proc knows them.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "datasets/metric.h"

namespace kvgauge::metrics {

using Text = std::u32string;
using TextView = std::u32string_view;

// Ill-formed bytes become U+FFFD: a model may stop in the middle of a character.
Text Decode(std::string_view utf8);
std::string Encode(TextView text);

bool IsSpace(char32_t c);        // str.isspace(), \s
bool IsDigit(char32_t c);        // str.isdecimal(), \d
bool IsLetter(char32_t c);       // str.isalpha()
bool IsWord(char32_t c);         // \w
bool IsPunctuation(char32_t c);  // string.punctuation: the 32 of ASCII

Text Lower(TextView text);                    // str.lower(), final sigma included
Text Upper(TextView text);                    // str.upper(): \u00DF becomes SS
TextView Strip(TextView text);                // str.strip()
std::vector<Text> SplitSpace(TextView text);  // str.split()
// str.split(separator): pieces may be empty.
std::vector<TextView> SplitAt(TextView text, char32_t separator);
Text JoinSpace(const std::vector<Text>& words);
std::vector<TextView> DigitRuns(TextView text);  // re.findall(r"\d+")

void ReplaceEach(Text& text, TextView from, TextView to);  // text.replace(from, to), in place

// SQuAD's normalisation, as words: lower case, no ASCII punctuation, no articles.
std::vector<Text> NormalWords(TextView text);

// Small numbers for words, so that the loops below compare integers.
class Vocabulary {
 public:
  int Id(TextView word) {
    return ids_.try_emplace(Text(word), static_cast<int>(ids_.size())).first->second;
  }
  std::vector<int> Ids(const std::vector<Text>& words) {
    std::vector<int> ids;
    ids.reserve(words.size());
    for (const Text& word : words) ids.push_back(Id(word));
    return ids;
  }
  size_t size() const { return ids_.size(); }

 private:
  std::unordered_map<Text, int> ids_;
};

// The best score over the answers, and 0 without answers: how LongBench and most others do it.
using PairScore = double (*)(TextView prediction, TextView answer);
std::function<Result<double>(const MetricInput&)> BestOf(PairScore score);

// F1 of precision and recall; 0 where both are.
inline double HarmonicMean(double precision, double recall) {
  return precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0.0;
}

}  // namespace kvgauge::metrics
