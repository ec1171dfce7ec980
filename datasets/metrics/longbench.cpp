// SPDX-License-Identifier: Apache-2.0
// LongBench v1's own metrics, ROUGE and F1 of words aside.
#include <cmath>

#include "metrics/sequence.h"
#include "metrics/text.h"

namespace kvgauge::metrics::longbench {
namespace {

constexpr const char* kReference = "LongBench v1 metrics.py, commit 2e00731";

// The share of the numbers in the prediction that are `number`, compared as text.
double NumberShare(TextView prediction, TextView number) {
  const std::vector<TextView> runs = DigitRuns(prediction);
  if (runs.empty()) return 0;
  return static_cast<double>(std::count(runs.begin(), runs.end(), number)) /
         static_cast<double>(runs.size());
}

// Each answer names a paragraph, "Paragraph 3"; one that does not is a fault of the data.
std::function<Result<double>(const MetricInput&)> Retrieval(Text before_number, const char* shown) {
  return [before_number = std::move(before_number),
          shown](const MetricInput& input) -> Result<double> {
    const Text prediction = Decode(input.prediction);
    double best = 0;
    for (const std::string& utf8 : input.answers) {
      const Text answer = Decode(utf8);
      size_t at = answer.find(before_number);
      while (at != Text::npos && (at + before_number.size() == answer.size() ||
                                  !IsDigit(answer[at + before_number.size()]))) {
        at = answer.find(before_number, at + 1);
      }
      if (at == Text::npos) {
        return BadInput("answer \"" + utf8 + "\" names no paragraph; it must hold \"" + shown +
                        "\" and a number");
      }
      const TextView rest = TextView(answer).substr(at + before_number.size());
      best = std::max(best, NumberShare(prediction, DigitRuns(rest).front()));
    }
    return best;
  };
}

double ClassScore(TextView prediction, TextView answer, const std::vector<Text>& classes) {
  std::vector<Text> named;
  for (const Text& name : classes) {
    if (prediction.find(name) != TextView::npos) named.push_back(name);
  }
  // The reference deletes from the list it walks: each deletion hides the next entry from the walk,
  // and what goes is the first entry of that value.
  for (size_t i = 0; i < named.size(); ++i) {
    const Text name = named[i];
    if (name != answer && answer.find(name) != TextView::npos) {
      named.erase(std::find(named.begin(), named.end(), name));
    }
  }
  if (std::find(named.begin(), named.end(), answer) == named.end()) return 0;
  return 1.0 / static_cast<double>(named.size());
}

Result<double> Classification(const MetricInput& input) {
  const Text prediction = Decode(input.prediction);
  std::vector<Text> classes;
  for (const std::string& name : input.all_classes) classes.push_back(Decode(name));
  if (classes.empty()) return BadInput("classification needs all_classes, the list of labels");
  double best = 0;
  for (const std::string& answer : input.answers) {
    best = std::max(best, ClassScore(prediction, Decode(answer), classes));
  }
  return best;
}

// A blank line counts as code; leading blanks stay.
TextView FirstCodeLine(TextView prediction) {
  while (!prediction.empty() && prediction.front() == '\n') prediction.remove_prefix(1);
  for (const TextView line : SplitAt(prediction, '\n')) {
    if (line.find_first_of(U"`#") == TextView::npos && line.find(U"//") == TextView::npos) {
      return line;
    }
  }
  return {};
}

double CodeSim(TextView prediction, TextView answer) {
  return FuzzRatio(FirstCodeLine(prediction), answer) / 100.0;
}

double CodeSimLevenshtein(TextView prediction, TextView answer) {
  return FuzzRatioLevenshtein(FirstCodeLine(prediction), answer) / 100.0;
}

}  // namespace

KVG_REGISTER_METRIC(count, {"count", 1, "share of the numbers in the prediction that are right",
                            kReference, BestOf(NumberShare)});
KVG_REGISTER_METRIC(retrieval,
                    {"retrieval", 1, "share of the numbers that are the right paragraph's",
                     kReference, Retrieval(U"Paragraph ", "Paragraph ")});
KVG_REGISTER_METRIC(retrieval_zh,
                    {"retrieval_zh", 1, "share of the numbers that are the right paragraph's",
                     kReference, Retrieval(U"\u6bb5\u843d", "\u6bb5\u843d")});
KVG_REGISTER_METRIC(classification,
                    {"classification", 1, "1 / labels named, when the right one is among them",
                     kReference, Classification});
KVG_REGISTER_METRIC(code_sim, {"code_sim", 1,
                               "fuzz.ratio of the first line of code, through difflib: LongBench's "
                               "requirements do not install python-Levenshtein",
                               "LongBench v1 metrics.py, commit 2e00731, with fuzzywuzzy 0.18.0",
                               BestOf(CodeSim)});
KVG_REGISTER_METRIC(code_sim_levenshtein,
                    {"code_sim_levenshtein", 1,
                     "fuzz.ratio of the first line of code where python-Levenshtein is installed: "
                     "KVCache-Factory's tables (SnapKV, PyramidKV, H2O) have it",
                     "LongBench v1 metrics.py, commit 2e00731, with fuzzywuzzy 0.18.0 and "
                     "python-Levenshtein 0.27.5",
                     BestOf(CodeSimLevenshtein)});

}  // namespace kvgauge::metrics::longbench
