// SPDX-License-Identifier: Apache-2.0
// BLEU of one sentence and of a set of them, as NLTK, sacreBLEU and the COCO toolkit have it.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "core/strings.h"
#include "metrics/caption_words.h"
#include "metrics/text.h"

namespace kvgauge::metrics::bleu {
namespace {

constexpr size_t kOrders = 4;

struct Counts {
  std::array<int64_t, kOrders> matched = {};
  std::array<int64_t, kOrders> total = {};  // n-grams of the prediction
  int64_t predicted = 0;                    // words
  int64_t closest = 0;                      // of the answer nearest in length, the shorter of two
};

using Grams = std::map<std::vector<int>, int64_t>;

Grams Count(const std::vector<int>& words, size_t order) {
  Grams grams;
  for (size_t i = 0; i + order <= words.size(); ++i) {
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(i);
    ++grams[std::vector<int>(begin, begin + static_cast<std::ptrdiff_t>(order))];
  }
  return grams;
}

template <class Tokenize>
Counts CountAll(const MetricInput& input, Tokenize tokenize, bool shortest = false) {
  Vocabulary vocabulary;
  const std::vector<int> prediction = vocabulary.Ids(tokenize(Decode(input.prediction)));
  Counts counts;
  counts.predicted = static_cast<int64_t>(prediction.size());
  std::vector<std::vector<int>> answers;
  int64_t nearest = std::numeric_limits<int64_t>::max();
  for (const std::string& answer : input.answers) {
    answers.push_back(vocabulary.Ids(tokenize(Decode(answer))));
    const auto length = static_cast<int64_t>(answers.back().size());
    const int64_t away = std::abs(length - counts.predicted);
    const bool nearer = away < nearest || (away == nearest && length < counts.closest);
    if (shortest ? answers.size() == 1 || length < counts.closest : nearer) {
      nearest = away;
      counts.closest = length;
    }
  }
  for (size_t order = 1; order <= kOrders; ++order) {
    Grams most;
    for (const auto& answer : answers) {
      for (const auto& [gram, times] : Count(answer, order)) {
        int64_t& held = most[gram];
        held = std::max(held, times);
      }
    }
    for (const auto& [gram, times] : Count(prediction, order)) {
      counts.total[order - 1] += times;
      if (const auto found = most.find(gram); found != most.end()) {
        counts.matched[order - 1] += std::min(times, found->second);
      }
    }
  }
  return counts;
}

double BrevityPenalty(const Counts& counts) {
  if (counts.predicted >= counts.closest) return 1;
  if (counts.predicted == 0) return 0;
  return std::exp(1 - static_cast<double>(counts.closest) / static_cast<double>(counts.predicted));
}

using Weights = std::array<double, kOrders>;
constexpr Weights kEven = {0.25, 0.25, 0.25, 0.25};

// An order without a match counts as the smallest positive number, so that the score is a number
// like 1e-78 where others would say 0.
double NltkScore(const Counts& counts, const Weights& weights = kEven) {
  if (counts.matched[0] == 0) return 0.0;
  double sum = 0;
  for (size_t n = 0; n < kOrders; ++n) {
    const double precision = static_cast<double>(counts.matched[n]) /
                             static_cast<double>(std::max<int64_t>(1, counts.total[n]));
    sum += weights[n] * std::log(precision > 0 ? precision : std::numeric_limits<double>::min());
  }
  return BrevityPenalty(counts) * std::exp(sum);
}

Result<double> Nltk(const MetricInput& input) {
  if (input.answers.empty()) return BadInput("bleu needs at least one answer");
  return NltkScore(CountAll(input, [](const Text& text) { return SplitSpace(text); }));
}

// One order alone. An empty output is the word None there.
MetricSpec LoogleBleu(const char* name, const char* description, size_t order) {
  Weights weights = {};
  weights[order - 1] = 1;
  return {name, 1, description, "LooGLE automatic_metrics.py, commit 6734382, with nltk 3.10.4",
          [weights](const MetricInput& input) -> Result<double> {
            double best = 0;
            for (const std::string& answer : input.answers) {
              MetricInput one;
              one.prediction = input.prediction.empty() ? "None" : input.prediction;
              one.answers = {answer};
              const Counts counts =
                  CountAll(one, [](const Text& text) { return SplitSpace(text); });
              best = std::max(best, NltkScore(counts, weights));
            }
            return best;
          }};
}

bool IsAsciiDigit(char32_t c) { return c >= '0' && c <= '9'; }
bool IsPoint(char32_t c) { return c == '.' || c == ','; }

// mteval-v13a's signs that always stand alone: ASCII punctuation but ' , - .
bool IsSign(char32_t c) {
  return c == ' ' || (IsPunctuation(c) && c != '\'' && c != ',' && c != '-' && c != '.');
}

// Rewrites every non-overlapping pair of neighbours that `matches`, from left to right.
template <class Matches>
Text SplitPairs(const Text& text, Matches matches, bool blank_before, bool blank_after) {
  Text out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 == text.size() || !matches(text[i], text[i + 1])) {
      out.push_back(text[i]);
      continue;
    }
    if (blank_before) out.push_back(' ');
    out.push_back(text[i]);
    out.push_back(' ');
    out.push_back(text[++i]);
    if (blank_after) out.push_back(' ');
  }
  return out;
}

// Words and signs of a text. What stands at an end of it has no neighbour there.
std::vector<Text> SplitSigns(TextView text) {
  Text spaced;
  for (const char32_t c : text) {
    if (IsSign(c)) {
      spaced.append({U' ', c, U' '});
    } else {
      spaced.push_back(c);
    }
  }
  spaced = SplitPairs(
      spaced, [](char32_t a, char32_t b) { return !IsAsciiDigit(a) && IsPoint(b); }, false, true);
  spaced = SplitPairs(
      spaced, [](char32_t a, char32_t b) { return IsPoint(a) && !IsAsciiDigit(b); }, true, false);
  spaced = SplitPairs(
      spaced, [](char32_t a, char32_t b) { return IsAsciiDigit(a) && b == '-'; }, false, true);
  return SplitSpace(spaced);
}

// mteval-v13a's words of a line.
std::vector<Text> LineTokens13a(TextView line) {
  Text text(line);
  ReplaceEach(text, U"<skipped>", U"");
  ReplaceEach(text, U"-\n", U"");
  ReplaceEach(text, U"\n", U" ");
  ReplaceEach(text, U"&quot;", U"\"");
  ReplaceEach(text, U"&amp;", U"&");
  ReplaceEach(text, U"&lt;", U"<");
  ReplaceEach(text, U"&gt;", U">");
  return SplitSigns(U" " + text + U" ");
}

// As sacreBLEU has it, which drops white space at the end first.
std::vector<Text> Tokens13a(const Text& line) {
  TextView rest = line;
  while (!rest.empty() && IsSpace(rest.back())) rest.remove_suffix(1);
  return LineTokens13a(rest);
}

std::vector<Text> TokensM4leEnglish(const Text& line) { return LineTokens13a(line); }

// What M4LE's list of ranges takes for Chinese. Two of them are written with too many digits and,
// compared as texts, hold most signs from U+2001 on.
bool IsM4leChinese(char32_t c) {
  constexpr std::array<std::pair<char32_t, char32_t>, 19> kRanges = {{
      {0x2001, 0x2a6d}, {0x2e80, 0x2eff}, {0x2f00, 0x2fdf}, {0x2ff0, 0x2fff}, {0x3000, 0x303f},
      {0x3100, 0x312f}, {0x31a0, 0x31bf}, {0x31c0, 0x31ef}, {0x3200, 0x32ff}, {0x3300, 0x33ff},
      {0x3400, 0x4db5}, {0x4e00, 0x9fa5}, {0x9fa6, 0x9fbb}, {0xf900, 0xfa2d}, {0xfa30, 0xfa6a},
      {0xfa70, 0xfad9}, {0xfe10, 0xfe1f}, {0xfe30, 0xfe4f}, {0xff00, 0xffef},
  }};
  return std::any_of(kRanges.begin(), kRanges.end(),
                     [c](const auto& range) { return range.first <= c && c <= range.second; });
}

// Every Chinese character is a word.
std::vector<Text> TokensM4leChinese(const Text& line) {
  Text spaced;
  for (const char32_t c : Strip(line)) {
    if (IsM4leChinese(c)) {
      spaced.append({U' ', c, U' '});
    } else {
      spaced.push_back(c);
    }
  }
  return SplitSigns(spaced);
}

// Not smoothed: 0 where an order has no match. The shortest answer is the length that counts.
double M4leScore(const Counts& counts) {
  double sum = 0;
  for (size_t n = 0; n < kOrders; ++n) {
    if (counts.matched[n] == 0) return 0.0;
    sum += std::log(static_cast<double>(counts.matched[n]) / static_cast<double>(counts.total[n])) /
           kOrders;
  }
  const double ratio = static_cast<double>(counts.predicted) / static_cast<double>(counts.closest);
  return std::exp(sum) * (ratio > 1 ? 1 : std::exp(1 - 1 / ratio));
}

// Each order without a match halves the precision that it is given.
double SacreScore(const Counts& counts) {
  double halves = 1, sum = 0;
  size_t orders = 0;
  bool any = false;
  for (; orders < kOrders && counts.total[orders] > 0; ++orders) {
    const auto total = static_cast<double>(counts.total[orders]);
    const auto matched = static_cast<double>(counts.matched[orders]);
    any = any || matched > 0;
    if (matched == 0) halves *= 2;
    sum += std::log(matched > 0 ? matched / total : 1 / (halves * total));
  }
  if (!any) return 0.0;
  return BrevityPenalty(counts) * std::exp(sum / static_cast<double>(orders));
}

Result<double> Sacre(const MetricInput& input) {
  if (input.answers.empty()) return BadInput("sacrebleu needs at least one answer");
  return SacreScore(CountAll(input, Tokens13a));
}

// Sums over a set: matches and n-grams per order, words, and words of the nearest answers.
std::vector<double> AsSums(const Counts& counts, int64_t least_total) {
  std::vector<double> sums;
  for (const int64_t matched : counts.matched) sums.push_back(static_cast<double>(matched));
  for (const int64_t total : counts.total) {
    sums.push_back(static_cast<double>(std::max(least_total, total)));
  }
  sums.push_back(static_cast<double>(counts.predicted));
  sums.push_back(static_cast<double>(counts.closest));
  return sums;
}

Counts FromSums(const std::vector<double>& sums) {
  Counts counts;
  for (size_t n = 0; n < kOrders; ++n) {
    counts.matched[n] = static_cast<int64_t>(sums[n]);
    counts.total[n] = static_cast<int64_t>(sums[kOrders + n]);
  }
  counts.predicted = static_cast<int64_t>(sums[2 * kOrders]);
  counts.closest = static_cast<int64_t>(sums[2 * kOrders + 1]);
  return counts;
}

// A sentence without n-grams counts one here.
Result<std::vector<double>> NltkParts(const MetricInput& input) {
  if (input.answers.empty()) return BadInput("bleu needs at least one answer");
  return AsSums(CountAll(input, [](const Text& text) { return SplitSpace(text); }), 1);
}

double NltkCorpus(const std::vector<double>& sums) { return NltkScore(FromSums(sums)); }

using Tokens = std::vector<Text> (*)(const Text& line);

Result<Counts> CountM4le(const MetricInput& input, Tokens tokens) {
  if (input.answers.empty()) return BadInput("m4le_bleu needs at least one answer");
  return CountAll(input, tokens, true);
}

double M4leCorpus(const std::vector<double>& sums) { return M4leScore(FromSums(sums)); }

MetricSpec M4leBleu(const char* name, const char* description, Tokens tokens) {
  return {name,
          1,
          description,
          "M4LE utils/bleu.py, commit 47c2af9",
          [tokens](const MetricInput& input) -> Result<double> {
            KVG_ASSIGN(const Counts counts, CountM4le(input, tokens));
            return M4leScore(counts);
          },
          [tokens](const MetricInput& input) -> Result<std::vector<double>> {
            KVG_ASSIGN(const Counts counts, CountM4le(input, tokens));
            return AsSums(counts, 0);
          },
          M4leCorpus};
}

Result<std::vector<double>> SacreParts(const MetricInput& input) {
  if (input.answers.empty()) return BadInput("sacrebleu needs at least one answer");
  return AsSums(CountAll(input, Tokens13a), 0);
}

double SacreCorpus(const std::vector<double>& sums) {
  const Counts counts = FromSums(sums);
  return counts.total.back() > 0 ? SacreScore(counts) : 0.0;
}

// The COCO toolkit's, of runs of up to `orders` words. Its small numbers stand where an order has
// no run or no match.
double CocoScore(const Counts& counts, size_t orders) {
  constexpr double kTiny = 1e-15, kSmall = 1e-9;
  double product = 1;
  for (size_t n = 0; n < orders; ++n) {
    product *= (static_cast<double>(counts.matched[n]) + kTiny) /
               (static_cast<double>(counts.total[n]) + kSmall);
  }
  const double score = std::pow(product, 1 / static_cast<double>(orders));
  const double ratio = (static_cast<double>(counts.predicted) + kTiny) /
                       (static_cast<double>(counts.closest) + kSmall);
  return ratio < 1 ? score * std::exp(1 - 1 / ratio) : score;
}

std::vector<Text> CocoWords(const Text& caption) { return CaptionWords(caption); }
std::vector<Text> PlainWords(const Text& caption) { return SplitSpace(caption); }

MetricSpec CaptionBleu(std::string_view family, size_t orders, Tokens tokens) {
  const std::string name = StrCat(family, "_", orders);
  const auto counts_of = [name, tokens](const MetricInput& input) -> Result<Counts> {
    if (input.answers.empty()) return BadInput(StrCat(name, " needs at least one answer"));
    return CountAll(input, tokens);
  };
  return {name,
          1,
          StrCat("BLEU-", orders, " of captions of a set, ",
                 tokens == PlainWords ? "words parted by white space" : "the toolkit's words"),
          "pycocoevalcap 1.2 bleu.py",
          [counts_of, orders](const MetricInput& input) -> Result<double> {
            KVG_ASSIGN(const Counts counts, counts_of(input));
            return CocoScore(counts, orders);
          },
          [counts_of](const MetricInput& input) -> Result<std::vector<double>> {
            KVG_ASSIGN(const Counts counts, counts_of(input));
            return AsSums(counts, 0);
          },
          [orders](const std::vector<double>& sums) { return CocoScore(FromSums(sums), orders); }};
}

}  // namespace

KVG_REGISTER_METRIC(coco_bleu_1, CaptionBleu("coco_bleu", 1, CocoWords));
KVG_REGISTER_METRIC(coco_bleu_2, CaptionBleu("coco_bleu", 2, CocoWords));
KVG_REGISTER_METRIC(coco_bleu_3, CaptionBleu("coco_bleu", 3, CocoWords));
KVG_REGISTER_METRIC(coco_bleu_4, CaptionBleu("coco_bleu", 4, CocoWords));
KVG_REGISTER_METRIC(caption_bleu_1, CaptionBleu("caption_bleu", 1, PlainWords));
KVG_REGISTER_METRIC(caption_bleu_2, CaptionBleu("caption_bleu", 2, PlainWords));
KVG_REGISTER_METRIC(caption_bleu_3, CaptionBleu("caption_bleu", 3, PlainWords));
KVG_REGISTER_METRIC(caption_bleu_4, CaptionBleu("caption_bleu", 4, PlainWords));
KVG_REGISTER_METRIC(bleu, {"bleu", 1, "BLEU-4 of words split at white space, not smoothed",
                           "nltk 3.10.4 sentence_bleu", Nltk});
KVG_REGISTER_METRIC(sacrebleu, {"sacrebleu", 1, "BLEU of one sentence",
                                "sacrebleu 2.6.0 sentence_bleu, "
                                "nrefs:var|case:mixed|eff:yes|tok:13a|smooth:exp|version:2.6.0",
                                Sacre});
KVG_REGISTER_METRIC(bleu_corpus, {"bleu_corpus", 1, "BLEU-4 of a set, not smoothed",
                                  "nltk 3.10.4 corpus_bleu, words split at white space", Nltk,
                                  NltkParts, NltkCorpus});
KVG_REGISTER_METRIC(loogle_bleu_1, LoogleBleu("loogle_bleu_1", "BLEU of single words", 1));
KVG_REGISTER_METRIC(loogle_bleu_4, LoogleBleu("loogle_bleu_4",
                                              "BLEU of runs of four words and no shorter ones", 4));
KVG_REGISTER_METRIC(m4le_bleu_en,
                    M4leBleu("m4le_bleu_en", "BLEU-4 of a set, not smoothed, of 13a's words",
                             TokensM4leEnglish));
KVG_REGISTER_METRIC(m4le_bleu_zh,
                    M4leBleu("m4le_bleu_zh",
                             "BLEU-4 of a set, not smoothed, of Chinese characters and 13a's words",
                             TokensM4leChinese));
KVG_REGISTER_METRIC(sacrebleu_corpus,
                    {"sacrebleu_corpus", 1, "BLEU of a set; a sentence has sacrebleu's own score",
                     "sacrebleu 2.6.0 corpus_bleu, "
                     "nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
                     Sacre, SacreParts, SacreCorpus});

}  // namespace kvgauge::metrics::bleu
