// SPDX-License-Identifier: Apache-2.0
// Captions as the COCO toolkit scores them: ROUGE-L of one caption against several, and CIDEr,
// which weighs words by how many pictures of the set have them.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/strings.h"
#include "metrics/caption_words.h"
#include "metrics/sequence.h"
#include "metrics/text.h"

namespace kvgauge::metrics {
namespace {

constexpr char kToolkit[] = "pycocoevalcap 1.2, its tokenizer included";
constexpr int kGrams = 4;       // of CIDEr: runs of one to four words
constexpr double kSigma = 6.0;  // of its penalty for other lengths

// Words by number; a caption without any is one empty word, as there.
std::vector<int> WordIds(const std::string& caption, Vocabulary& words) {
  std::vector<Text> found = CaptionWords(Decode(caption));
  if (found.empty()) found.emplace_back();
  return words.Ids(found);
}

Result<double> CaptionRouge(const MetricInput& input) {
  constexpr double kBeta = 1.2;
  Vocabulary words;
  const std::vector<int> said = WordIds(input.prediction, words);
  double precision = 0, recall = 0;
  for (const std::string& answer : input.answers) {
    const std::vector<int> want = WordIds(answer, words);
    const auto common = static_cast<double>(LcsLength(said, want));
    precision = std::max(precision, common / static_cast<double>(said.size()));
    recall = std::max(recall, common / static_cast<double>(want.size()));
  }
  if (precision == 0 || recall == 0) return 0;
  return (1 + kBeta * kBeta) * precision * recall / (recall + kBeta * kBeta * precision);
}

using CaptionSplit = std::vector<Text> (*)(TextView caption);

using Gram = std::vector<int>;
// How often each run of words occurs in a caption.
using Grams = std::map<Gram, double>;

Grams GramsOf(const std::string& caption, CaptionSplit words_of, Vocabulary& words) {
  // The toolkit makes no runs at all of nothing.
  const std::vector<Text> found = words_of(Decode(caption));
  const std::vector<int> ids = words.Ids(found);
  Grams grams;
  for (size_t size = 1; size <= kGrams; ++size) {
    for (size_t at = 0; at + size <= ids.size(); ++at) {
      const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(at);
      ++grams[Gram(begin, begin + static_cast<std::ptrdiff_t>(size))];
    }
  }
  return grams;
}

// A caption as vectors of weights, one for each size of runs.
struct Weighed {
  std::array<std::map<Gram, double>, kGrams> weights;
  std::array<double, kGrams> norms = {};
  double length = 0;  // pairs of words, as the toolkit counts it
};

Weighed Weigh(const Grams& grams, const std::map<Gram, double>& pictures, double log_count) {
  Weighed made;
  for (const auto& [gram, count] : grams) {
    const auto found = pictures.find(gram);
    const double with = found == pictures.end() ? 1.0 : std::max(1.0, found->second);
    const size_t n = gram.size() - 1;
    const double weight = count * (log_count - std::log(with));
    made.weights[n][gram] = weight;
    made.norms[n] += weight * weight;
    if (n == 1) made.length += count;
  }
  for (double& norm : made.norms) norm = std::sqrt(norm);
  return made;
}

// The mean over sizes of the clipped cosine, less what another length costs.
double Similarity(const Weighed& said, const Weighed& want) {
  const double delta = said.length - want.length;
  const double penalty = std::exp(-(delta * delta) / (2 * kSigma * kSigma));
  double sum = 0;
  for (size_t n = 0; n < kGrams; ++n) {
    double value = 0;
    for (const auto& [gram, weight] : said.weights[n]) {
      const auto found = want.weights[n].find(gram);
      if (found != want.weights[n].end()) value += std::min(weight, found->second) * found->second;
    }
    if (said.norms[n] != 0 && want.norms[n] != 0) value /= said.norms[n] * want.norms[n];
    sum += value * penalty;
  }
  return sum / kGrams;
}

double Cider(std::span<const MetricInput> set, CaptionSplit words_of) {
  Vocabulary words;
  std::vector<std::vector<Grams>> references;
  std::map<Gram, double> pictures;  // that have the run in any of their captions
  for (const MetricInput& input : set) {
    std::vector<Grams>& own = references.emplace_back();
    std::map<Gram, bool> here;
    for (const std::string& answer : input.answers) {
      own.push_back(GramsOf(answer, words_of, words));
      for (const auto& [gram, count] : own.back()) here[gram] = true;
    }
    for (const auto& [gram, yes] : here) ++pictures[gram];
  }
  const double log_count = std::log(static_cast<double>(set.size()));
  double total = 0;
  for (size_t i = 0; i < set.size(); ++i) {
    const Weighed said = Weigh(GramsOf(set[i].prediction, words_of, words), pictures, log_count);
    double score = 0;
    for (const Grams& reference : references[i]) {
      score += Similarity(said, Weigh(reference, pictures, log_count));
    }
    if (!references[i].empty()) total += score / static_cast<double>(references[i].size());
  }
  return 10 * total / static_cast<double>(set.size());
}

MetricSpec CiderOf(const char* name, const char* description, const char* reference,
                   CaptionSplit words) {
  return {.name = name,
          .version = 1,
          .description = description,
          .reference = reference,
          .score = [name](const MetricInput&) -> Result<double> {
            return BadInput(StrCat(
                name, " weighs words by all captions of a set: `kvgauge score` over the answers"));
          },
          .of_set = [words](std::span<const MetricInput> set) { return Cider(set, words); }};
}

}  // namespace

KVG_REGISTER_METRIC(coco_rouge_l,
                    {"coco_rouge_l", 1, "ROUGE-L of captions, beta 1.2", kToolkit, CaptionRouge});
KVG_REGISTER_METRIC(coco_cider, CiderOf("coco_cider", "CIDEr-D over all captions of a set, 0 to 10",
                                        kToolkit, CaptionWords));
KVG_REGISTER_METRIC(
    caption_cider,
    CiderOf("caption_cider",
            "CIDEr-D over all captions of a set, words parted by white space, 0 to 10",
            "pycocoevalcap 1.2 cider.py", SplitSpace));

}  // namespace kvgauge::metrics
