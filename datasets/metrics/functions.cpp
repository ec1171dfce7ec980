// SPDX-License-Identifier: Apache-2.0
// SCBench: functions found again in a repository, and conversations that mix two kinds of
// questions.
#include <array>
#include <cmath>
#include <map>

#include "metrics/text.h"

namespace kvgauge::metrics::functions {
namespace {

constexpr const char* kReference = "SCBench compute_scores.py, MInference commit fb56c91";
constexpr size_t kOrders = 4;

// The first "```" from `at` on that begins a line; npos: none.
size_t Fence(TextView text, size_t at) {
  for (at = text.find(U"```", at); at != TextView::npos; at = text.find(U"```", at + 1)) {
    if (at == 0 || text[at - 1] == '\n') return at;
  }
  return TextView::npos;
}

// What the first fenced block holds; all of the text where there is none. A fence opens a block
// when nothing but one word and white space follows on its line.
TextView FirstBlock(TextView text) {
  for (size_t open = Fence(text, 0); open != TextView::npos; open = Fence(text, open + 1)) {
    size_t at = open + 3;
    while (at < text.size() && IsWord(text[at])) ++at;
    size_t begin = TextView::npos;  // behind the last line end of the white space
    for (; at < text.size() && IsSpace(text[at]); ++at) {
      if (text[at] == '\n') begin = at + 1;
    }
    if (begin == TextView::npos) continue;
    const size_t close = Fence(text, begin);
    if (close != TextView::npos) return text.substr(begin, close - begin);
  }
  return text;
}

// re.split at white space: a blank text is one empty word.
std::vector<int> Words(TextView text, Vocabulary& vocabulary) {
  std::vector<Text> words = SplitSpace(text);
  if (words.empty()) words.emplace_back();
  return vocabulary.Ids(words);
}

std::map<std::vector<int>, int64_t> Grams(const std::vector<int>& words, size_t order) {
  std::map<std::vector<int>, int64_t> grams;
  for (size_t i = 0; i + order <= words.size(); ++i) {
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(i);
    ++grams[std::vector<int>(begin, begin + static_cast<std::ptrdiff_t>(order))];
  }
  return grams;
}

// BLEU-4 against one reference with Chen and Cherry's fourth smoothing: an order without a match
// counts as ln(length) / (5 x 2^n) of one, the n-th such order.
double Similarity(const std::vector<int>& got, const std::vector<int>& want) {
  constexpr double kShrink = 5;
  const auto length = static_cast<double>(got.size());
  double sum = 0, halves = 1;
  for (size_t order = 1; order <= kOrders; ++order) {
    const auto wanted = Grams(want, order);
    double matched = 0, total = 0;
    for (const auto& [gram, times] : Grams(got, order)) {
      total += static_cast<double>(times);
      const auto found = wanted.find(gram);
      if (found != wanted.end()) matched += static_cast<double>(std::min(times, found->second));
    }
    if (matched == 0) {
      if (order == 1) return 0;
      if (got.size() < 2) continue;  // is not smoothed, and left out
      halves *= 2;
      matched = std::log(length) / (halves * kShrink);
    }
    sum += std::log(matched / std::max(total, 1.0)) / kOrders;
  }
  const auto wanted_length = static_cast<double>(want.size());
  const double brevity = length > wanted_length ? 1 : std::exp(1 - wanted_length / length);
  return brevity * std::exp(sum);
}

// Answers: the function and its name. all_classes: name, function, name, function ... of its
// repository.
Result<double> RepoQa(const MetricInput& input) {
  constexpr double kThreshold = 0.8;
  if (input.answers.size() != 2) {
    return BadInput("repoqa needs two answers: the function and its name");
  }
  if (input.all_classes.empty() || input.all_classes.size() % 2 != 0) {
    return BadInput("repoqa needs all_classes: name, function, name, function ... to choose from");
  }
  Vocabulary vocabulary;
  const Text whole = Decode(input.prediction);
  const std::vector<int> got = Words(FirstBlock(Strip(whole)), vocabulary);
  double best = 0;
  std::string best_name;
  for (size_t i = 0; i < input.all_classes.size(); i += 2) {
    const double similarity = Similarity(got, Words(Decode(input.all_classes[i + 1]), vocabulary));
    if (similarity > best) {
      best = similarity;
      best_name = input.all_classes[i];
    }
  }
  return best_name == input.answers[1] && best >= kThreshold ? 1.0 : 0.0;
}

Result<double> Passkey(const MetricInput& input) {
  if (input.answers.empty()) return BadInput("a pass key is the answer");
  const size_t begin = input.prediction.find_first_of("0123456789");
  if (begin == std::string::npos) return input.answers[0].empty() ? 1.0 : 0.0;
  const size_t end = input.prediction.find_first_not_of("0123456789", begin);
  return input.prediction.substr(begin, end - begin) == input.answers[0] ? 1.0 : 0.0;
}

// A kind of question and what scores it: one of `own`, or a registered metric.
struct Kind {
  const char* name;
  Result<double> (*own)(const MetricInput&);
  const char* metric;
};
using Kinds = std::array<Kind, 2>;
constexpr Kinds kSummaryWithNeedles = {{{"scbench_summary", nullptr, "google_rouge_lsum_plain"},
                                        {"scbench_passkey", Passkey, nullptr}}};
constexpr Kinds kRepoQaAndKv = {
    {{"scbench_repoqa", RepoQa, nullptr}, {"scbench_kv", nullptr, "contains"}}};

Result<size_t> KindOf(const Kinds& kinds, const MetricInput& input) {
  for (size_t k = 0; k < kinds.size(); ++k) {
    if (input.kind == kinds[k].name) return k;
  }
  return BadInput("kind \"" + input.kind + "\" is neither \"" + kinds[0].name + "\" nor \"" +
                  kinds[1].name + "\"");
}

Result<double> ScoreOf(const Kind& kind, const MetricInput& input) {
  return kind.own != nullptr ? kind.own(input) : FindMetric(kind.metric)->score(input);
}

std::function<Result<double>(const MetricInput&)> Mixed(const Kinds& kinds) {
  return [&kinds](const MetricInput& input) -> Result<double> {
    KVG_ASSIGN(const size_t kind, KindOf(kinds, input));
    return ScoreOf(kinds[kind], input);
  };
}

// The scores of each kind, and their number.
std::function<Result<std::vector<double>>(const MetricInput&)> MixedParts(const Kinds& kinds) {
  return [&kinds](const MetricInput& input) -> Result<std::vector<double>> {
    KVG_ASSIGN(const size_t kind, KindOf(kinds, input));
    KVG_ASSIGN(const double score, ScoreOf(kinds[kind], input));
    std::vector<double> parts(2 * kinds.size(), 0.0);
    parts[2 * kind] = score;
    parts[2 * kind + 1] = 1;
    return parts;
  };
}

double MeanOfKinds(const std::vector<double>& sums) {
  double sum = 0, kinds = 0;
  for (size_t k = 0; k + 1 < sums.size(); k += 2) {
    if (sums[k + 1] == 0) continue;
    sum += sums[k] / sums[k + 1];
    ++kinds;
  }
  return kinds > 0 ? sum / kinds : 0;
}

}  // namespace

KVG_REGISTER_METRIC(repoqa, {"repoqa", 1,
                             "the function is the one of its repository that the first fenced "
                             "block is most like, by BLEU of at least 0.8",
                             "SCBench repo_qa_utils.py, MInference commit fb56c91, without its "
                             "search for a function within the block",
                             RepoQa});
KVG_REGISTER_METRIC(
    scbench_summary_with_needles,
    {"scbench_summary_with_needles", 1,
     "by the question's kind: ROUGE-Lsum of summaries, the first number for pass keys; of a set "
     "the mean of both means",
     kReference, Mixed(kSummaryWithNeedles), MixedParts(kSummaryWithNeedles), MeanOfKinds});
KVG_REGISTER_METRIC(
    scbench_repoqa_and_kv,
    {"scbench_repoqa_and_kv", 1,
     "by the question's kind: repoqa, or whether the value stands in the prediction; of a set the "
     "mean of both means",
     kReference, Mixed(kRepoQaAndKv), MixedParts(kRepoQaAndKv), MeanOfKinds});

}  // namespace kvgauge::metrics::functions
