// SPDX-License-Identifier: Apache-2.0
#include "metrics/nltk_lemmas.h"

#include <cstdlib>
#include <optional>

#include "core/files.h"
#include "core/strings.h"
#include "metrics/nltk_words.h"
#include "metrics/porter.h"

namespace kvgauge::metrics::nltk {
namespace {

constexpr size_t kDigestLetters = 16;

// The part of speech in WordNet of a tag of the Penn Treebank.
std::optional<int> PartOf(const std::string& tag) {
  constexpr std::array<const char*, 4> kParts = {"NN", "VB", "JJ", "RB"};
  for (size_t part = 0; part < kParts.size(); ++part) {
    if (tag.starts_with(kParts[part])) return static_cast<int>(part);
  }
  return std::nullopt;
}

}  // namespace

Result<std::shared_ptr<const Language>> Language::Load(const std::string& folder) {
  const std::string tagger = folder + "/taggers/averaged_perceptron_tagger_eng";
  const std::string punkt = folder + "/tokenizers/punkt_tab/english";
  for (const std::string& needed : {tagger, punkt}) {
    if (DirectoryExists(needed)) continue;
    return BadInput(StrCat(needed,
                           " is not there: take a folder that scripts/fetch_data nltk has filled "
                           "(DATA/nltk), or nltk.download of averaged_perceptron_tagger_eng and "
                           "punkt_tab"));
  }
  const std::shared_ptr<Language> language(new Language);
  Sha256 digest;
  KVG_ASSIGN(language->punkt_, Punkt::Load(punkt, digest));
  KVG_ASSIGN(language->tagger_, PerceptronTagger::Load(tagger, digest));
  language->digest_ = digest.Finish().substr(0, kDigestLetters);
  return std::shared_ptr<const Language>(language);
}

Result<std::shared_ptr<const Language>> Language::Shared() {
  static const Result<std::shared_ptr<const Language>> shared =
      []() -> Result<std::shared_ptr<const Language>> {
    const char* folder = std::getenv("KVGAUGE_NLTK");
    if (folder == nullptr || *folder == '\0') return std::shared_ptr<const Language>();
    Result<std::shared_ptr<const Language>> loaded = Load(folder);
    if (!loaded.ok()) return loaded.error().Wrap("KVGAUGE_NLTK");
    return loaded;
  }();
  return shared;
}

std::vector<Text> Language::Words(TextView text) const {
  std::vector<Text> words;
  for (const TextView sentence : punkt_->Split(text)) {
    for (Text& word : NltkWords(sentence)) words.push_back(std::move(word));
  }
  return words;
}

// A word whose tag has no part of speech is tagged once more, alone; what then has none is a noun.
Text Language::Lemma(const Text& word, const std::string& tag, const WordNet& net) const {
  std::optional<int> part = PartOf(tag);
  if (!part) part = PartOf(tagger_->Tags({word})[0]);
  const std::string plain = Encode(word), lemma = net.Lemma(plain, part.value_or(0));
  if (net.HasForm(lemma)) return Decode(lemma);
  Text stem = PorterStem(word);
  return net.HasForm(Encode(stem)) ? stem : word;
}

std::vector<Text> Language::Lemmas(TextView text, const WordNet& net) const {
  std::vector<Text> words;
  for (const TextView sentence : punkt_->Split(text)) {
    for (Text& word : PywsdWords(sentence)) words.push_back(std::move(word));
  }
  const std::vector<std::string> tags = tagger_->Tags(words);
  std::vector<Text> lemmas;
  for (size_t i = 0; i < words.size(); ++i) lemmas.push_back(Lemma(Lower(words[i]), tags[i], net));
  return lemmas;
}

}  // namespace kvgauge::metrics::nltk
