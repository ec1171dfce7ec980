// SPDX-License-Identifier: Apache-2.0
// Metrics of order and of amount: reciprocal rank, concordance, exponential similarity.
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

#include "core/strings.h"
#include "metrics/numbers.h"
#include "metrics/text.h"

namespace kvgauge::metrics::ranking {
namespace {

// The prediction is a ranking, one item a line, best first.
Result<double> ReciprocalRank(const MetricInput& input) {
  std::set<Text> right;
  for (const std::string& answer : input.answers) {
    const Text text = Decode(answer);
    right.emplace(Strip(text));
  }
  const Text ranking = Decode(input.prediction);
  double rank = 0;
  for (const TextView line : SplitAt(ranking, '\n')) {
    const TextView item = Strip(line);
    if (item.empty()) continue;
    ++rank;
    if (right.contains(Text(item))) return 1 / rank;
  }
  return 0.0;
}

// The first run of digits, with its decimals.
std::optional<double> Percentage(const std::string& text) {
  const Text decoded = Decode(text);
  return PythonFloat(FirstNumber(decoded));
}

// Percentages: ten points away is worth a half.
Result<double> ExponentialSimilarity(const MetricInput& input) {
  const std::optional<double> got = Percentage(input.prediction);
  double best = 0;
  for (const std::string& answer : input.answers) {
    const std::optional<double> want = Percentage(answer);
    if (!want) {
      return BadInput(StrCat("answer ", Quoted(answer), " is no percentage"));
    }
    if (got) best = std::max(best, std::exp2(-10 * std::abs(*want / 100 - *got / 100)));
  }
  return best;
}

// Numbers of more than nine digits are no positions: all of them count as one that no order has.
std::vector<int64_t> Numbers(const std::string& text) {
  constexpr int64_t kNoPlace = int64_t{1} << 40;
  std::vector<int64_t> numbers;
  const Text decoded = Decode(text);
  for (const TextView run : DigitRuns(decoded)) {
    const std::string digits = *PythonInt(run);
    numbers.push_back(digits.size() > 9 ? kNoPlace : std::atoll(digits.c_str()));
  }
  return numbers;
}

// The right order: one text that holds all of it, or one answer per place.
Result<std::vector<int64_t>> RightOrder(const MetricInput& input) {
  std::string joined;
  for (const std::string& answer : input.answers) joined.append(answer).append(" ");
  std::vector<int64_t> order = Numbers(joined);
  if (order.size() < 2) return BadInput("the answer must hold the right order, two places or more");
  return order;
}

using Pairs = std::set<std::pair<int64_t, int64_t>>;

Pairs OrderedPairs(const std::vector<int64_t>& order) {
  Pairs pairs;
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = i + 1; j < order.size(); ++j) pairs.emplace(order[i], order[j]);
  }
  return pairs;
}

double SharedPairs(const std::vector<int64_t>& got, const std::vector<int64_t>& want) {
  const Pairs right = OrderedPairs(want), found = OrderedPairs(got);
  int64_t common = 0;
  for (const auto& pair : right) common += found.contains(pair) ? 1 : 0;
  return static_cast<double>(common) / static_cast<double>(right.size());
}

// Beyond this many places a text is no order of anything; the pairs would not fit into memory.
constexpr size_t kMaxPlaces = 2000;

Result<double> Concordance(const MetricInput& input) {
  KVG_ASSIGN(const std::vector<int64_t> want, RightOrder(input));
  const std::vector<int64_t> got = Numbers(input.prediction);
  if (want.size() > kMaxPlaces) return BadInput("the right order has more than 2000 places");
  if (got.size() != want.size()) return 0.0;
  if (std::set<int64_t>(got.begin(), got.end()) != std::set<int64_t>(want.begin(), want.end())) {
    return 0.0;
  }
  return SharedPairs(got, want);
}

// Places may be counted from 1 where the answer counts from 0; items may occur twice.
Result<double> ConcordanceBamboo(const MetricInput& input) {
  KVG_ASSIGN(const std::vector<int64_t> want, RightOrder(input));
  std::vector<int64_t> got = Numbers(input.prediction);
  if (want.size() > kMaxPlaces) return BadInput("the right order has more than 2000 places");
  if (got.size() != want.size()) return 0.0;
  if (*std::min_element(got.begin(), got.end()) == 1) {
    for (int64_t& place : got) --place;
  }
  return SharedPairs(got, want);
}

}  // namespace

KVG_REGISTER_METRIC(mrr, {"mrr", 1,
                          "1 / rank of the first right item; the prediction has one item a line",
                          "definition", ReciprocalRank});
KVG_REGISTER_METRIC(exponential_similarity,
                    {"exponential_similarity", 2,
                     "2^(-10 |p - p'|) of the first number of each text, in percent",
                     "ZeroSCROLLS, definition in the paper", ExponentialSimilarity});
KVG_REGISTER_METRIC(concordance_index,
                    {"concordance_index", 2,
                     "share of the pairs in the right order; 0 for what is no permutation",
                     "ZeroSCROLLS, definition in the paper", Concordance});
KVG_REGISTER_METRIC(concordance_bamboo,
                    {"concordance_bamboo", 2,
                     "share of the pairs in the right order, counted from 0 or 1",
                     "BAMBOO evaluate.py, commit f230f20", ConcordanceBamboo});

}  // namespace kvgauge::metrics::ranking
