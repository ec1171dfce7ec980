// SPDX-License-Identifier: Apache-2.0
// BABILong: which of a task's labels an output names.
#include <set>

#include "metrics/text.h"

namespace kvgauge::metrics::babilong {
namespace {

// The part of the first sentence before a context or an example of the model's own.
Text FirstSentence(TextView prediction) {
  Text text = Lower(prediction);
  for (const TextView end : {TextView(U"."), TextView(U"<context>"), TextView(U"<example>")}) {
    text = text.substr(0, text.find(end));
  }
  return text;
}

// Several targets are all labels, if the text is longer than a pair of directions such as "n,e",
// which is one label.
bool Named(const std::set<Text>& found, const Text& target) {
  if (target.size() <= 3 || target.find(U',') == Text::npos) {
    return found.size() == 1 && found.contains(target);
  }
  const std::vector<TextView> targets = SplitAt(target, U',');
  return found.size() == targets.size() &&
         std::all_of(targets.begin(), targets.end(),
                     [&](TextView one) { return found.contains(Text(one)); });
}

Result<double> Babilong(const MetricInput& input) {
  if (input.answers.empty()) return BadInput("babilong needs the target as answer");
  if (input.all_classes.empty()) {
    return BadInput(
        "babilong needs all_classes: the task's labels that the question does not name");
  }
  const Text sentence = FirstSentence(Decode(input.prediction));
  std::set<Text> found;
  for (const std::string& label : input.all_classes) {
    Text lower = Lower(Decode(label));
    if (sentence.find(lower) != Text::npos) found.insert(std::move(lower));
  }
  return std::any_of(input.answers.begin(), input.answers.end(),
                     [&](const std::string& answer) { return Named(found, Lower(Decode(answer))); })
             ? 1.0
             : 0.0;
}

}  // namespace

KVG_REGISTER_METRIC(babilong,
                    {"babilong", 1, "the first sentence names the target and no other label",
                     "BABILong metrics.py, commit 7a6efee", Babilong});

}  // namespace kvgauge::metrics::babilong
