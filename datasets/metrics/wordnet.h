// SPDX-License-Identifier: Apache-2.0
// WordNet 3.0 from its dictionary files, with NLTK's ideas of which synsets a word has and of how
// similar two of them are.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/files.h"
#include "core/result.h"

namespace kvgauge::metrics {

// A line of a data file: part of speech (0 noun, 1 verb, 2 adjective, 3 adverb) and byte offset.
struct Synset {
  int part = 0;
  int64_t offset = 0;
  auto operator<=>(const Synset&) const = default;
};

// Immutable; safe to use from several threads.
class WordNet {
 public:
  // The directory of index.noun, data.noun, noun.exc and their siblings.
  static Result<std::shared_ptr<const WordNet>> Load(const std::string& directory);
  // From KVGAUGE_WORDNET, or from where Debian's package wordnet-base puts it; read once.
  static Result<std::shared_ptr<const WordNet>> Shared();

  // The synsets of a lower-case word and of its base forms: nouns first, then verbs, adjectives,
  // adverbs.
  std::vector<Synset> Synsets(const std::string& word) const;
  // The shortest base form of a lower-case word, as NLTK's WordNetLemmatizer takes it; the word
  // itself where it has none.
  std::string Lemma(const std::string& word, int part) const;
  // Whether the package wn 0.0.23 finds a synset: it takes endings off until a form is known, where
  // `Synsets` takes off one.
  bool HasForm(const std::string& word) const;
  // The words of a synset as they are written there, underscores included.
  std::vector<std::string> Words(Synset synset) const;
  // Wu and Palmer's similarity; nothing where the two have no common ancestor.
  std::optional<double> Similarity(Synset a, Synset b) const;

 private:
  static constexpr size_t kParts = 4;

  // What a data line says. Nothing for an offset at which no line begins.
  struct Entry {
    std::string name;  // unique; synsets are ordered by it
    bool satellite = false;
    std::vector<std::string> words;
    std::vector<Synset> parents;  // hypernyms, then those of instances
  };

  WordNet() = default;
  Status LoadPart(const std::string& directory, size_t part);
  std::vector<std::string> BaseForms(const std::string& word, size_t part) const;
  bool Has(const std::string& word, size_t part) const;
  bool HasForm(const std::string& word, size_t part) const;
  std::optional<Entry> Read(Synset synset) const;
  std::vector<Synset> Parents(Synset synset) const;
  int64_t Depth(Synset synset, bool longest, std::set<Synset>& above) const;
  std::map<Synset, int64_t> Distances(Synset synset) const;

  std::array<std::shared_ptr<const MappedFile>, kParts> data_;
  std::array<std::unordered_map<std::string, std::vector<int64_t>>, kParts> index_;
  std::array<size_t, kParts> longest_ = {};  // the bytes of the longest word of each
  std::array<std::unordered_map<std::string, std::vector<std::string>>, kParts> exceptions_;
};

}  // namespace kvgauge::metrics
