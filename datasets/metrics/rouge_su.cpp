// SPDX-License-Identifier: Apache-2.0
// ROUGE-SU4: words, and pairs of words with at most four others between them, as ROUGE-1.5.5.pl
// counts them with -2 4 -U.
#include <map>
#include <string>

#include "metrics/text.h"

namespace kvgauge::metrics::rouge_su {
namespace {

constexpr size_t kMaxBetween = 4;

// Runs of ASCII letters and digits, in lower case; every other sign is a blank there.
std::vector<Text> AsciiWords(TextView text) {
  Text blanked;
  for (const char32_t c : text) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool kept = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    blanked.push_back(!kept ? U' ' : upper ? c + 32 : c);
  }
  return SplitSpace(blanked);
}

struct Grams {
  std::map<std::pair<int, int>, int64_t> counts;  // (-1, w) is the word w
  int64_t total = 0;
};

// The last word is counted in pairs only: the script's loop ends before it, so a text of one word
// has nothing to be counted.
Grams GramsOf(TextView text, Vocabulary& vocabulary) {
  const std::vector<int> words = vocabulary.Ids(AsciiWords(text));
  Grams grams;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    ++grams.counts[{-1, words[i]}];
    ++grams.total;
    for (size_t j = i + 1; j < words.size() && j - i <= kMaxBetween + 1; ++j) {
      ++grams.counts[{words[i], words[j]}];
      ++grams.total;
    }
  }
  return grams;
}

// Counts of several answers are added, as the script's averaging does (-f A).
Result<double> RougeSu4(const MetricInput& input) {
  Vocabulary vocabulary;
  const Grams got = GramsOf(Decode(input.prediction), vocabulary);
  int64_t common = 0, got_total = 0, want_total = 0;
  for (const std::string& answer : input.answers) {
    const Grams want = GramsOf(Decode(answer), vocabulary);
    for (const auto& [gram, times] : got.counts) {
      const auto found = want.counts.find(gram);
      if (found != want.counts.end()) common += std::min(times, found->second);
    }
    got_total += got.total;
    want_total += want.total;
  }
  if (common == 0) return 0.0;
  return HarmonicMean(static_cast<double>(common) / static_cast<double>(got_total),
                      static_cast<double>(common) / static_cast<double>(want_total));
}

}  // namespace

KVG_REGISTER_METRIC(rouge_su4,
                    {"rouge_su4", 2,
                     "F of words and of pairs at most five apart, of ASCII letters and digits, no "
                     "stemmer; several answers are counted as one",
                     "ROUGE-1.5.5.pl -2 4 -U, which rounds to five digits", RougeSu4});

}  // namespace kvgauge::metrics::rouge_su
