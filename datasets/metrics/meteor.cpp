// SPDX-License-Identifier: Apache-2.0
// METEOR as NLTK has it; not the aligner of the Java program.
#include <cmath>
#include <memory>

#include "metrics/porter.h"
#include "metrics/text.h"
#include "metrics/wordnet.h"

namespace kvgauge::metrics::meteor {
namespace {

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

// From the last word to the first, each takes the last word that is left and that is one of its
// synonyms, or itself.
void AlignSynonyms(const std::vector<Text>& got, const std::vector<Text>& want, const WordNet& net,
                   Alignment& alignment) {
  std::unordered_map<std::string, std::vector<int>> places;
  for (size_t j = 0; j < want.size(); ++j) {
    if (alignment.answer_used[j] == 0) places[Encode(want[j])].push_back(static_cast<int>(j));
  }
  for (size_t i = got.size(); i-- > 0;) {
    if (alignment.match[i] >= 0) continue;
    const std::string word = Encode(got[i]);
    std::vector<int>* best = nullptr;
    const auto consider = [&](const std::string& synonym) {
      const auto found = places.find(synonym);
      if (found == places.end() || found->second.empty()) return;
      if (best == nullptr || found->second.back() > best->back()) best = &found->second;
    };
    consider(word);
    for (const Synset synset : net.Synsets(Encode(Lower(got[i])))) {
      for (const std::string& synonym : net.Words(synset)) {
        if (synonym.find('_') == std::string::npos) consider(synonym);
      }
    }
    if (best == nullptr) continue;
    alignment.match[i] = best->back();
    alignment.answer_used[static_cast<size_t>(best->back())] = 1;
    best->pop_back();
  }
}

// `net` may be null: then only equal words and equal stems match.
double Meteor(TextView prediction, TextView answer, const WordNet* net) {
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
  if (net != nullptr) AlignSynonyms(got, want, *net, alignment);

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

double MeteorNoSynonyms(TextView prediction, TextView answer) {
  return Meteor(prediction, answer, nullptr);
}

Result<double> MeteorWithSynonyms(const MetricInput& input) {
  KVG_ASSIGN(const std::shared_ptr<const WordNet> net, WordNet::Shared());
  const Text prediction = Decode(input.prediction);
  double best = 0;
  for (const std::string& answer : input.answers) {
    best = std::max(best, Meteor(prediction, Decode(answer), net.get()));
  }
  return best;
}

}  // namespace

KVG_REGISTER_METRIC(meteor_no_synonyms,
                    {"meteor_no_synonyms", 1,
                     "NLTK's METEOR with exact and stem matches only: no WordNet",
                     "nltk 3.10.4 single_meteor_score with an empty WordNet, words split at white "
                     "space",
                     BestOf(MeteorNoSynonyms)});
KVG_REGISTER_METRIC(meteor, {"meteor", 1,
                             "NLTK's METEOR: equal words, equal stems, synonyms. Needs WordNet",
                             "nltk 3.10.4 single_meteor_score with WordNet 3.0, words split at "
                             "white space",
                             MeteorWithSynonyms});

}  // namespace kvgauge::metrics::meteor
