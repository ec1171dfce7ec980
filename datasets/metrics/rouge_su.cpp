// SPDX-License-Identifier: Apache-2.0
// ROUGE-SU4: words, and pairs of words with at most four others between them.
#include <map>

#include "metrics/text.h"

namespace kvgauge::metrics {
namespace {

constexpr size_t kMaxBetween = 4;

using Grams = std::map<std::pair<int, int>, int64_t>;  // (-1, w) is the word w

double RougeSu4(TextView prediction, TextView answer) {
  Vocabulary vocabulary;
  const auto grams = [&](TextView text, double& total) {
    const std::vector<int> words = vocabulary.Ids(SplitSpace(Lower(text)));
    Grams counts;
    total = 0;
    for (size_t i = 0; i < words.size(); ++i) {
      ++counts[{-1, words[i]}];
      ++total;
      for (size_t j = i + 1; j < words.size() && j - i <= kMaxBetween + 1; ++j) {
        ++counts[{words[i], words[j]}];
        ++total;
      }
    }
    return counts;
  };
  double got_total = 0, want_total = 0, common = 0;
  const Grams got = grams(prediction, got_total), want = grams(answer, want_total);
  for (const auto& [gram, times] : got) {
    if (const auto found = want.find(gram); found != want.end()) {
      common += static_cast<double>(std::min(times, found->second));
    }
  }
  return common > 0 ? HarmonicMean(common / got_total, common / want_total) : 0;
}

}  // namespace

KVG_REGISTER_METRIC(rouge_su4,
                    {"rouge_su4", 1,
                     "F of words and of pairs at most five apart, lower case, no stemmer",
                     "ROUGE 1.5.5 -2 4 -U by its definition", BestOf(RougeSu4)});

}  // namespace kvgauge::metrics
