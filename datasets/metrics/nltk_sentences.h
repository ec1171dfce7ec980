// SPDX-License-Identifier: Apache-2.0
// Sentences as NLTK's Punkt tokenizer finds them (Kiss and Strunk 2006), with the parameters of
// NLTK's package punkt_tab.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/sha256.h"
#include "metrics/text.h"

namespace kvgauge::metrics::nltk {

// Immutable; safe to use from several threads.
class Punkt {
 public:
  // Reads the folder that holds abbrev_types.txt, collocations.tab, ortho_context.tab and
  // sent_starters.txt. Their bytes go into `digest`.
  static Result<std::shared_ptr<const Punkt>> Load(const std::string& folder, Sha256& digest);

  // Parts of `text`, in order, without the white space between them.
  std::vector<TextView> Split(TextView text) const;

 private:
  struct Token {
    Text text, type;
    bool ends_sentence = false, abbreviation = false, ellipsis = false;
  };
  enum class Starts { kNo, kYes, kUnknown };

  Punkt() = default;
  Token Annotated(TextView word) const;
  bool EndsWithin(TextView context) const;
  void Decide(Token& token, const Token& next) const;
  Starts StartsSentence(const Token& token) const;
  int Cases(const Text& type) const;

  std::unordered_set<Text> abbreviations_, starters_;
  std::set<std::pair<Text, Text>> collocations_;
  std::unordered_map<Text, int> cases_;  // in which cases and places a type was seen: a sum of bits
};

}  // namespace kvgauge::metrics::nltk
