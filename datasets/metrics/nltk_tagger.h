// SPDX-License-Identifier: Apache-2.0
// Parts of speech by NLTK's averaged perceptron, with the weights of its package
// averaged_perceptron_tagger_eng.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/sha256.h"
#include "metrics/text.h"

namespace kvgauge::metrics::nltk {

// Immutable; safe to use from several threads.
class PerceptronTagger {
 public:
  // Reads the folder that holds averaged_perceptron_tagger_eng.weights.json, .tagdict.json and
  // .classes.json. Their bytes go into `digest`.
  static Result<std::shared_ptr<const PerceptronTagger>> Load(const std::string& folder,
                                                              Sha256& digest);

  // One tag for each word.
  std::vector<std::string> Tags(const std::vector<Text>& words) const;

 private:
  struct Weight {
    uint32_t tag;  // its place in `tags_`
    double value;
  };

  PerceptronTagger() = default;
  Result<uint32_t> PlaceOf(const std::string& tag) const;
  size_t Best(const std::vector<std::string>& features) const;

  std::vector<std::string> tags_;                          // sorted
  std::unordered_map<std::string, uint32_t> known_words_;  // of one tag, whatever stands beside
  std::unordered_map<std::string, std::vector<Weight>> weights_;
};

}  // namespace kvgauge::metrics::nltk
