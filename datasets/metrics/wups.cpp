// SPDX-License-Identifier: Apache-2.0
// WUPS: how near the words of two short answers stand in WordNet.
#include <memory>

#include "metrics/text.h"
#include "metrics/wordnet.h"

namespace kvgauge::metrics::wups {
namespace {

// The first synset of each word decides; a pair below `threshold` counts a tenth.
double Similarity(const WordNet& net, const std::string& a, const std::string& b,
                  double threshold) {
  if (a == b) return 1;
  const std::vector<Synset> of_a = net.Synsets(a), of_b = net.Synsets(b);
  if (of_a.empty() || of_b.empty()) return 0;
  const double similarity = net.Similarity(of_a[0], of_b[0]).value_or(0);
  return similarity < threshold ? 0.1 * similarity : similarity;
}

// The product over the words of `a` of the best match in `b`; words that match nothing are left
// out, and when all do the answer is worth nothing.
double OneWay(const WordNet& net, const std::vector<std::string>& a,
              const std::vector<std::string>& b, double threshold) {
  double product = 1;
  bool any = false;
  for (const std::string& word : a) {
    double best = 0;
    for (const std::string& other : b) {
      best = std::max(best, Similarity(net, word, other, threshold));
    }
    if (best == 0) continue;
    product *= best;
    any = true;
  }
  return any ? product : 0;
}

std::vector<std::string> Words(const std::string& utf8) {
  std::vector<std::string> words;
  for (const Text& word : SplitSpace(Lower(Decode(utf8)))) words.push_back(Encode(word));
  return words;
}

std::function<Result<double>(const MetricInput&)> Wups(double threshold) {
  return [threshold](const MetricInput& input) -> Result<double> {
    KVG_ASSIGN(const std::shared_ptr<const WordNet> net, WordNet::Shared());
    const std::vector<std::string> got = Words(input.prediction);
    double best = 0;
    for (const std::string& answer : input.answers) {
      const std::vector<std::string> want = Words(answer);
      best = std::max(
          best, std::min(OneWay(*net, got, want, threshold), OneWay(*net, want, got, threshold)));
    }
    return best;
  };
}

constexpr const char* kReference =
    "NExT-OE get_wups, commit a83f8f5, over nltk 3.10.4 and WordNet 3.0, words split at white "
    "space: lemmas and stop words are left to the data";

}  // namespace

KVG_REGISTER_METRIC(wups,
                    {"wups", 1, "WUPS without a threshold. Needs WordNet", kReference, Wups(0)});
KVG_REGISTER_METRIC(wups_09,
                    {"wups_09", 1, "WUPS: words less than 0.9 alike count a tenth. Needs WordNet",
                     kReference, Wups(0.9)});

}  // namespace kvgauge::metrics::wups
