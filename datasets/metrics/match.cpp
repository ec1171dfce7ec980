// SPDX-License-Identifier: Apache-2.0
// Metrics that look for one text in another.
#include <set>

#include "metrics/text.h"

namespace kvgauge::metrics::match {
namespace {

constexpr const char* kRuler = "RULER scripts/eval, string_match_*";

double ExactMatch(TextView prediction, TextView answer) {
  return NormalWords(prediction) == NormalWords(answer) ? 1 : 0;
}

double PartialMatch(TextView prediction, TextView answer) {
  const Text got = JoinSpace(NormalWords(prediction));
  return got.find(JoinSpace(NormalWords(answer))) != Text::npos ? 1 : 0;
}

double Accuracy(TextView prediction, TextView answer) {
  return Strip(prediction) == Strip(answer) ? 1 : 0;
}

// RULER's predictions lose their control characters before they are compared.
Text RulerText(TextView prediction) {
  Text text(Strip(prediction));
  for (char32_t& c : text) {
    if (c < 0x20) c = '\n';
  }
  return Lower(Strip(text));
}

Result<double> StringMatchAll(const MetricInput& input) {
  if (input.answers.empty()) return BadInput("string_match_all needs at least one answer");
  const Text prediction = RulerText(Decode(input.prediction));
  int64_t found = 0;
  for (const std::string& answer : input.answers) {
    if (prediction.find(Lower(Decode(answer))) != Text::npos) ++found;
  }
  return static_cast<double>(found) / static_cast<double>(input.answers.size());
}

Result<double> StringMatchPart(const MetricInput& input) {
  if (input.answers.empty()) return BadInput("string_match_part needs at least one answer");
  const Text prediction = RulerText(Decode(input.prediction));
  for (const std::string& answer : input.answers) {
    if (prediction.find(Lower(Decode(answer))) != Text::npos) return 1.0;
  }
  return 0.0;
}

std::set<Text> WordSet(TextView text) {
  std::set<Text> words;
  for (Text& word : SplitSpace(Lower(text))) words.insert(std::move(word));
  return words;
}

double WordOverlap(TextView prediction, TextView answer) {
  const std::set<Text> got = WordSet(prediction);
  const std::set<Text> want = WordSet(answer);
  if (want.empty()) return 0;
  const auto common =
      std::count_if(want.begin(), want.end(), [&](const Text& word) { return got.contains(word); });
  return static_cast<double>(common) / static_cast<double>(want.size());
}

}  // namespace

KVG_REGISTER_METRIC(exact_match, {"exact_match", 1, "equal after SQuAD normalisation",
                                  "SQuAD v1.1 evaluation", BestOf(ExactMatch)});
KVG_REGISTER_METRIC(partial_match,
                    {"partial_match", 1,
                     "an answer is a substring of the prediction, both after SQuAD normalisation",
                     "lost-in-the-middle metrics.py, best_subspan_em", BestOf(PartialMatch)});
KVG_REGISTER_METRIC(accuracy, {"accuracy", 1, "equal but for white space at the ends", "own",
                               BestOf(Accuracy)});
KVG_REGISTER_METRIC(string_match_all,
                    {"string_match_all", 1, "share of the answers found in the prediction", kRuler,
                     StringMatchAll});
KVG_REGISTER_METRIC(string_match_part,
                    {"string_match_part", 1, "1 when any answer is found in the prediction", kRuler,
                     StringMatchPart});
KVG_REGISTER_METRIC(needle_word_overlap,
                    {"needle_word_overlap", 1,
                     "share of the answer's distinct lower-case words that the prediction has",
                     "KVCache-Factory c97f9d7, needle heat map", BestOf(WordOverlap)});

}  // namespace kvgauge::metrics::match
