// SPDX-License-Identifier: Apache-2.0
#include "metrics/nltk_tagger.h"

#include <cmath>

#include "core/json.h"
#include "core/strings.h"
#include "metrics/nltk_text.h"

namespace kvgauge::metrics::nltk {
namespace {

constexpr const char* kStem = "/averaged_perceptron_tagger_eng.";

// A word as the features see it.
Text Normal(const Text& word) {
  if (word[0] != '-' && word.find('-') != Text::npos) return U"!HYPHEN";
  if (word.size() == 4 && std::ranges::all_of(word, IsDigitLike)) return U"!YEAR";
  if (IsDigitLike(word[0])) return U"!DIGITS";
  return Lower(word);
}

std::string Suffix(TextView word) {
  return Encode(word.size() > 3 ? word.substr(word.size() - 3) : word);
}

Result<Json> ReadPart(const std::string& folder, const std::string& part, Sha256& digest) {
  const std::string path = StrCat(folder, kStem, part, ".json");
  KVG_ASSIGN(const std::string text, ReadData(path, digest));
  KVG_ASSIGN(Json json, ParseJson(text, path));
  const bool list = part == "classes";
  if (json.empty() || (list ? !json.is_array() : !json.is_object())) {
    return BadInput(StrCat(path, ": must be ",
                           list ? "a list of tags, [\"NN\", ...]"
                           : part == "tagdict"
                               ? "an object of words and their tags, {\"the\": \"DT\", ...}"
                               : "an object of features and their weights, {\"bias\": {\"NN\": "
                                 "0.5, ...}, ...}"));
  }
  return json;
}

}  // namespace

Result<uint32_t> PerceptronTagger::PlaceOf(const std::string& tag) const {
  const auto found = std::ranges::lower_bound(tags_, tag);
  if (found == tags_.end() || *found != tag) {
    return BadInput(
        StrCat("unknown tag ", Quoted(tag),
               ", expected one that averaged_perceptron_tagger_eng.classes.json names"));
  }
  return static_cast<uint32_t>(found - tags_.begin());
}

Result<std::shared_ptr<const PerceptronTagger>> PerceptronTagger::Load(const std::string& folder,
                                                                       Sha256& digest) {
  const std::shared_ptr<PerceptronTagger> tagger(new PerceptronTagger);
  KVG_ASSIGN(const Json classes, ReadPart(folder, "classes", digest));
  for (size_t i = 0; i < classes.size(); ++i) {
    if (!classes[i].is_string() || classes[i].get_ref<const std::string&>().empty()) {
      return BadInput(StrCat(folder, kStem, "classes.json: entry ", i, " is ", classes[i].dump(),
                             ", expected a tag, e.g. \"NN\""));
    }
    tagger->tags_.push_back(classes[i]);
  }
  std::ranges::sort(tagger->tags_);

  KVG_ASSIGN(const Json words, ReadPart(folder, "tagdict", digest));
  for (const auto& [word, tag] : words.items()) {
    const std::string where = StrCat(folder, kStem, "tagdict.json: ", Quoted(word));
    if (!tag.is_string()) {
      return BadInput(StrCat(where, ": is ", tag.dump(), ", expected a tag, e.g. \"NN\""));
    }
    const Result<uint32_t> place = tagger->PlaceOf(tag);
    if (!place.ok()) return place.error().Wrap(where);
    tagger->known_words_[word] = *place;
  }

  KVG_ASSIGN(const Json weights, ReadPart(folder, "weights", digest));
  for (const auto& [feature, of_tags] : weights.items()) {
    const std::string where = StrCat(folder, kStem, "weights.json: ", Quoted(feature));
    if (!of_tags.is_object()) {
      return BadInput(StrCat(where, ": is ", Quoted(of_tags.dump()),
                             ", expected an object of tags and weights, e.g. {\"NN\": 0.5}"));
    }
    std::vector<Weight>& list = tagger->weights_[feature];
    for (const auto& [tag, value] : of_tags.items()) {
      const Result<uint32_t> place = tagger->PlaceOf(tag);
      if (!place.ok()) return place.error().Wrap(where);
      if (!value.is_number() || !std::isfinite(value.get<double>())) {
        return BadInput(StrCat(where, ": ", Quoted(tag), " is ", Quoted(value.dump()),
                               ", expected a finite number"));
      }
      list.push_back({*place, value.get<double>()});
    }
  }
  return std::shared_ptr<const PerceptronTagger>(tagger);
}

// The last of equal sums wins. The features' order is that of the sum.
size_t PerceptronTagger::Best(const std::vector<std::string>& features) const {
  std::vector<double> sums(tags_.size(), 0.0);
  for (const std::string& feature : features) {
    const auto found = weights_.find(feature);
    if (found == weights_.end()) continue;
    for (const Weight& weight : found->second) sums[weight.tag] += weight.value;
  }
  size_t best = 0;
  for (size_t i = 1; i < sums.size(); ++i) {
    if (sums[i] >= sums[best]) best = i;
  }
  return best;
}

std::vector<std::string> PerceptronTagger::Tags(const std::vector<Text>& words) const {
  std::vector<Text> context = {U"-START-", U"-START2-"};
  for (const Text& word : words) context.push_back(Normal(word));
  context.emplace_back(U"-END-");
  context.emplace_back(U"-END2-");

  std::vector<std::string> tags;
  std::string previous = "-START-", before_previous = "-START2-";
  for (size_t i = 0; i < words.size(); ++i) {
    std::string tag;
    if (const auto known = known_words_.find(Encode(words[i])); known != known_words_.end()) {
      tag = tags_[known->second];
    } else {
      const size_t at = i + 2;
      const auto word_at = [&context](size_t place) { return Encode(context[place]); };
      tag = tags_[Best(
          {"bias", "i suffix " + Suffix(words[i]), "i pref1 " + Encode(words[i].substr(0, 1)),
           "i-1 tag " + previous, "i-2 tag " + before_previous,
           StrCat("i tag+i-2 tag ", previous, " ", before_previous), "i word " + word_at(at),
           StrCat("i-1 tag+i word ", previous, " ", word_at(at)), "i-1 word " + word_at(at - 1),
           "i-1 suffix " + Suffix(context[at - 1]), "i-2 word " + word_at(at - 2),
           "i+1 word " + word_at(at + 1), "i+1 suffix " + Suffix(context[at + 1]),
           "i+2 word " + word_at(at + 2)})];
    }
    before_previous = std::move(previous);
    previous = tag;
    tags.push_back(std::move(tag));
  }
  return tags;
}

}  // namespace kvgauge::metrics::nltk
