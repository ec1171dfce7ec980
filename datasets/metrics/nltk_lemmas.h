// SPDX-License-Identifier: Apache-2.0
// The words of a text as NLTK parts them, and their lemmas as the package pywsd finds them: by each
// word's part of speech, in WordNet.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "metrics/nltk_sentences.h"
#include "metrics/nltk_tagger.h"
#include "metrics/wordnet.h"

namespace kvgauge::metrics::nltk {

// Immutable; safe to use from several threads.
class Language {
 public:
  // `folder` is one that nltk.download fills: it holds taggers/averaged_perceptron_tagger_eng and
  // tokenizers/punkt_tab/english.
  static Result<std::shared_ptr<const Language>> Load(const std::string& folder);
  // From the folder in the environment variable KVGAUGE_NLTK, read once; null where it is not set.
  static Result<std::shared_ptr<const Language>> Shared();

  // nltk.word_tokenize.
  std::vector<Text> Words(TextView text) const;
  // pywsd.utils.lemmatize_sentence.
  std::vector<Text> Lemmas(TextView text, const WordNet& net) const;
  // The checksum of the files' sizes and bytes.
  const std::string& digest() const { return digest_; }

 private:
  Language() = default;
  Text Lemma(const Text& word, const std::string& tag, const WordNet& net) const;

  std::shared_ptr<const Punkt> punkt_;
  std::shared_ptr<const PerceptronTagger> tagger_;
  std::string digest_;
};

}  // namespace kvgauge::metrics::nltk
