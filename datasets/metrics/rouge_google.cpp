// SPDX-License-Identifier: Apache-2.0
// ROUGE as google-research's package `rouge_score` has it, with and without its stemmer: clipped
// counts of ASCII words.
#include <array>
#include <cmath>
#include <map>

#include "core/strings.h"
#include "metrics/porter.h"
#include "metrics/sequence.h"
#include "metrics/text.h"

namespace kvgauge::metrics::rouge_google {
namespace {

bool IsKept(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

template <bool stem>
std::vector<Text> Tokens(TextView text) {
  const Text lower = Lower(text);
  std::vector<Text> tokens;
  for (size_t i = 0; i < lower.size();) {
    while (i < lower.size() && !IsKept(lower[i])) ++i;
    const size_t begin = i;
    while (i < lower.size() && IsKept(lower[i])) ++i;
    if (i == begin) break;
    const TextView word = TextView(lower).substr(begin, i - begin);
    tokens.push_back(stem && word.size() > 3 ? PorterStem(word) : Text(word));
  }
  return tokens;
}

double FromCounts(int64_t common, int64_t predicted, int64_t wanted) {
  return HarmonicMean(
      static_cast<double>(common) / static_cast<double>(std::max<int64_t>(1, predicted)),
      static_cast<double>(common) / static_cast<double>(std::max<int64_t>(1, wanted)));
}

template <size_t n, bool stem>
double RougeN(TextView prediction, TextView answer) {
  using Gram = std::array<int, n>;
  Vocabulary vocabulary;
  const auto count = [&](TextView text) {
    const std::vector<int> ids = vocabulary.Ids(Tokens<stem>(text));
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

template <bool stem>
double RougeL(TextView prediction, TextView answer) {
  Vocabulary vocabulary;
  const std::vector<int> got = vocabulary.Ids(Tokens<stem>(prediction));
  const std::vector<int> want = vocabulary.Ids(Tokens<stem>(answer));
  return FromCounts(LcsLength(want, got), static_cast<int64_t>(got.size()),
                    static_cast<int64_t>(want.size()));
}

// An alignment table beyond this is refused.
constexpr size_t kMostTableBytes = size_t{1} << 30;

// Lines are sentences. For each of the answer's, the words that it shares in order with any of the
// prediction's count, as often as both texts have them.
template <bool stem>
Result<double> RougeLsum(TextView prediction, TextView answer) {
  Vocabulary vocabulary;
  const auto sentences = [&](TextView text, int64_t& words) {
    std::vector<std::vector<int>> lines;
    words = 0;
    for (const TextView line : SplitAt(text, '\n')) {
      if (line.empty()) continue;
      lines.push_back(vocabulary.Ids(Tokens<stem>(line)));
      words += static_cast<int64_t>(lines.back().size());
    }
    return lines;
  };
  int64_t got_words = 0, want_words = 0;
  const std::vector<std::vector<int>> got = sentences(prediction, got_words);
  const std::vector<std::vector<int>> want = sentences(answer, want_words);
  std::vector<int64_t> got_left(vocabulary.size()), want_left(vocabulary.size());
  for (const auto& line : got) {
    for (const int word : line) ++got_left[static_cast<size_t>(word)];
  }
  for (const auto& line : want) {
    for (const int word : line) ++want_left[static_cast<size_t>(word)];
  }
  int64_t hits = 0;
  for (const std::vector<int>& line : want) {
    std::vector<char> shared(line.size(), 0);
    for (const std::vector<int>& other : got) {
      if (line.size() * other.size() / 8 > kMostTableBytes) {
        return ResourceError(StrCat("ROUGE-Lsum: lines of ", line.size(), " and ", other.size(),
                                    " words are too long to align"));
      }
      for (const LcsMatch& match : LcsMatches(other, line))
        shared[static_cast<size_t>(match.y)] = 1;
    }
    for (size_t i = 0; i < line.size(); ++i) {
      const auto word = static_cast<size_t>(line[i]);
      if (shared[i] == 0 || got_left[word] == 0 || want_left[word] == 0) continue;
      --got_left[word];
      --want_left[word];
      ++hits;
    }
  }
  return FromCounts(hits, got_words, want_words);
}

template <bool stem>
Result<double> BestLsum(const MetricInput& input) {
  const Text prediction = Decode(input.prediction);
  double best = 0;
  for (const std::string& answer : input.answers) {
    KVG_ASSIGN(const double score, RougeLsum<stem>(prediction, Decode(answer)));
    best = std::max(best, score);
  }
  return best;
}

// Each kind takes its own best answer. Sums: samples, and the three scores.
Result<std::vector<double>> ThreeKinds(const MetricInput& input) {
  std::vector<double> sums = {1};
  for (const PairScore kind : {RougeN<1, false>, RougeN<2, false>, RougeL<false>}) {
    KVG_ASSIGN(const double score, BestOf(kind)(input));
    sums.push_back(score);
  }
  return sums;
}

double GeometricMean(const std::vector<double>& sums) {
  return std::cbrt(sums[1] / sums[0] * (sums[2] / sums[0]) * (sums[3] / sums[0]));
}

Result<double> GeometricMeanOfOne(const MetricInput& input) {
  KVG_ASSIGN(const std::vector<double> sums, ThreeKinds(input));
  return GeometricMean(sums);
}

constexpr const char* kStemmed = "rouge-score 0.1.2, use_stemmer=True, fmeasure";
constexpr const char* kPlain = "rouge-score 0.1.2, use_stemmer=False, fmeasure";

}  // namespace

KVG_REGISTER_METRIC(google_rouge_1,
                    {"google_rouge_1", 1, "F of stemmed words", kStemmed, BestOf(RougeN<1, true>)});
KVG_REGISTER_METRIC(google_rouge_2, {"google_rouge_2", 1, "F of pairs of stemmed words", kStemmed,
                                     BestOf(RougeN<2, true>)});
KVG_REGISTER_METRIC(google_rouge_l,
                    {"google_rouge_l", 1, "F of the longest common subsequence of stemmed words",
                     kStemmed, BestOf(RougeL<true>)});
KVG_REGISTER_METRIC(google_rouge_lsum,
                    {"google_rouge_lsum", 1,
                     "F of the union of line-wise common subsequences of stemmed words", kStemmed,
                     BestLsum<true>});
KVG_REGISTER_METRIC(google_rouge_1_plain,
                    {"google_rouge_1_plain", 1, "F of words", kPlain, BestOf(RougeN<1, false>)});
KVG_REGISTER_METRIC(google_rouge_2_plain, {"google_rouge_2_plain", 1, "F of pairs of words", kPlain,
                                           BestOf(RougeN<2, false>)});
KVG_REGISTER_METRIC(google_rouge_l_plain,
                    {"google_rouge_l_plain", 1, "F of the longest common subsequence of words",
                     kPlain, BestOf(RougeL<false>)});
KVG_REGISTER_METRIC(google_rouge_lsum_plain,
                    {"google_rouge_lsum_plain", 1,
                     "F of the union of line-wise common subsequences of words", kPlain,
                     BestLsum<false>});
KVG_REGISTER_METRIC(rouge_geometric_mean,
                    {"rouge_geometric_mean", 1,
                     "cube root of ROUGE-1, -2 and -L, of a set's three means", kPlain,
                     GeometricMeanOfOne, ThreeKinds, GeometricMean});

}  // namespace kvgauge::metrics::rouge_google
