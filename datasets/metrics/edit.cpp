// SPDX-License-Identifier: Apache-2.0
// Edit similarity, and METEOR.
#include <cmath>

#include "metrics/porter.h"
#include "metrics/sequence.h"
#include "metrics/text.h"

namespace kvgauge::metrics {
namespace {

double EditSimilarity(TextView prediction, TextView answer) {
  const size_t longest = std::max(prediction.size(), answer.size());
  if (longest == 0) return 1;
  return 1 - static_cast<double>(EditDistance(prediction, answer)) / static_cast<double>(longest);
}

// match[i] is where word i of the prediction stands in the answer, or -1.
struct Alignment {
  std::vector<int> match;
  std::vector<char> answer_used;
};

// From the last word to the first, each takes the last equal word that is left.
void AlignEqual(const std::vector<int>& got, const std::vector<int>& want, size_t vocabulary,
                Alignment& alignment) {
  std::vector<std::vector<int>> places(vocabulary);
  for (size_t j = 0; j < want.size(); ++j) {
    if (alignment.answer_used[j] == 0) {
      places[static_cast<size_t>(want[j])].push_back(static_cast<int>(j));
    }
  }
  for (size_t i = got.size(); i-- > 0;) {
    std::vector<int>& left = places[static_cast<size_t>(got[i])];
    if (alignment.match[i] >= 0 || left.empty()) continue;
    alignment.match[i] = left.back();
    alignment.answer_used[static_cast<size_t>(left.back())] = 1;
    left.pop_back();
  }
}

double Meteor(TextView prediction, TextView answer) {
  std::vector<Text> got = SplitSpace(Lower(prediction));
  std::vector<Text> want = SplitSpace(Lower(answer));
  Alignment alignment{std::vector<int>(got.size(), -1), std::vector<char>(want.size(), 0)};
  const auto align = [&] {
    Vocabulary vocabulary;
    const std::vector<int> got_ids = vocabulary.Ids(got), want_ids = vocabulary.Ids(want);
    AlignEqual(got_ids, want_ids, vocabulary.size(), alignment);
  };
  align();
  for (Text& word : got) word = PorterStem(word);
  for (Text& word : want) word = PorterStem(word);
  align();

  double matches = 0, chunks = 0;
  int before = -2;  // where the previous word of the prediction stands, -2 without one
  for (const int at : alignment.match) {
    if (at >= 0) {
      ++matches;
      if (before < 0 || at != before + 1) ++chunks;
    }
    before = at >= 0 ? at : -2;
  }
  if (matches == 0) return 0;
  constexpr double kAlpha = 0.9, kBeta = 3, kGamma = 0.5;
  const double precision = matches / static_cast<double>(got.size());
  const double recall = matches / static_cast<double>(want.size());
  const double mean = precision * recall / (kAlpha * precision + (1 - kAlpha) * recall);
  return (1 - kGamma * std::pow(chunks / matches, kBeta)) * mean;
}

}  // namespace

KVG_REGISTER_METRIC(edit_similarity, {"edit_similarity", 1,
                                      "1 - Levenshtein distance / longer length, in characters",
                                      "definition", BestOf(EditSimilarity)});
KVG_REGISTER_METRIC(meteor_no_synonyms,
                    {"meteor_no_synonyms", 1,
                     "NLTK's METEOR with exact and stem matches only: no WordNet",
                     "nltk 3.10.4 single_meteor_score with an empty WordNet, words split at white "
                     "space",
                     BestOf(Meteor)});

}  // namespace kvgauge::metrics
