// SPDX-License-Identifier: Apache-2.0
// ROUGE as google-research's package `rouge_score` has it, stemmer on: clipped counts of ASCII
// words.
#include <array>
#include <map>

#include "metrics/porter.h"
#include "metrics/sequence.h"
#include "metrics/text.h"

namespace kvgauge::metrics {
namespace {

bool IsKept(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

std::vector<Text> Tokens(TextView text) {
  const Text lower = Lower(text);
  std::vector<Text> tokens;
  for (size_t i = 0; i < lower.size();) {
    while (i < lower.size() && !IsKept(lower[i])) ++i;
    const size_t begin = i;
    while (i < lower.size() && IsKept(lower[i])) ++i;
    if (i == begin) break;
    const TextView word = TextView(lower).substr(begin, i - begin);
    tokens.push_back(word.size() > 3 ? PorterStem(word) : Text(word));
  }
  return tokens;
}

double FromCounts(int64_t common, int64_t predicted, int64_t wanted) {
  return HarmonicMean(
      static_cast<double>(common) / static_cast<double>(std::max<int64_t>(1, predicted)),
      static_cast<double>(common) / static_cast<double>(std::max<int64_t>(1, wanted)));
}

template <size_t n>
double RougeN(TextView prediction, TextView answer) {
  using Gram = std::array<int, n>;
  Vocabulary vocabulary;
  const auto count = [&](TextView text) {
    const std::vector<int> ids = vocabulary.Ids(Tokens(text));
    std::map<Gram, int64_t> grams;
    for (size_t i = 0; i + n <= ids.size(); ++i) {
      Gram gram;
      std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(i), n, gram.begin());
      ++grams[gram];
    }
    return grams;
  };
  const auto total = [](const std::map<Gram, int64_t>& grams) {
    int64_t sum = 0;
    for (const auto& [gram, times] : grams) sum += times;
    return sum;
  };
  const std::map<Gram, int64_t> got = count(prediction), want = count(answer);
  int64_t common = 0;
  for (const auto& [gram, times] : want) {
    if (const auto found = got.find(gram); found != got.end()) {
      common += std::min(times, found->second);
    }
  }
  return FromCounts(common, total(got), total(want));
}

double RougeL(TextView prediction, TextView answer) {
  Vocabulary vocabulary;
  const std::vector<int> got = vocabulary.Ids(Tokens(prediction));
  const std::vector<int> want = vocabulary.Ids(Tokens(answer));
  return FromCounts(LcsLength(want, got), static_cast<int64_t>(got.size()),
                    static_cast<int64_t>(want.size()));
}

constexpr const char* kReference = "rouge-score 0.1.2, use_stemmer=True, fmeasure";

}  // namespace

KVG_REGISTER_METRIC(google_rouge_1,
                    {"google_rouge_1", 1, "F of stemmed words", kReference, BestOf(RougeN<1>)});
KVG_REGISTER_METRIC(google_rouge_2, {"google_rouge_2", 1, "F of pairs of stemmed words", kReference,
                                     BestOf(RougeN<2>)});
KVG_REGISTER_METRIC(google_rouge_l,
                    {"google_rouge_l", 1, "F of the longest common subsequence of stemmed words",
                     kReference, BestOf(RougeL)});

}  // namespace kvgauge::metrics
